"""Random names, times, notebooks and archives, as learners may choose them: nothing raises,
and all that is done with it takes time in proportion to its length."""

import io
import json
import time
import zipfile
from contextlib import contextmanager

import pytest

from labkit.course.files import safe_id
from labkit.course.report import clean, clean_name, csv_safe, one_line
from labkit.course.syllabus import LABS
from labkit.grading.collect.attempts import SourceLayout
from labkit.grading.collect.labs import lab_by_name, lab_of_cells
from labkit.grading.collect.roster import normalize_name, split_name
from labkit.grading.collect.walk import files_of, odd_path
from labkit.grading.judge.intake import language_of, rebuild
from labkit.grading.judge.notebook_file import NotANotebook
from labkit.grading.nbgrader.timestamp import parse_timestamp
from tests.course.cost import yardstick

hypothesis = pytest.importorskip("hypothesis", reason="not checked: no hypothesis")
some = hypothesis.strategies
LAB = LABS[0]
SECONDS = 100 * yardstick()  # of the processor; some fifty times what it takes
SECONDS_PER_BYTE = SECONDS / 25_000
fuzzed = hypothesis.settings(
    max_examples=150, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)  # fmt: skip

WORDS = (
    *(" ", "_", "-", ".", "+", "/", "lab", "lab-1-", "01", "rmsnorm", ".ipynb", ".zip", "LATE"),
    *("assignsubmission", "file", "submission", "2026-03-01", "10:00:00", "UTC", "+0100"),
    *("1" * 30, "e", ":", "\n", "\0", "\x1b[2J", "<b>", '"', "\u202e", "\ufdfa", "é", "\ud800"),
    *("=", "# %% exercise 1.1", "def layer_norm", "(", "[", "{", "'", "\\", "%"),
)
texts = some.lists(
    some.one_of(some.sampled_from(WORDS), some.text(max_size=3)), max_size=40
).flatmap(lambda parts: some.integers(1, 12).map(lambda times: "".join(parts) * times))
names = texts.map(lambda text: text.encode("utf-8", "replace").decode()[:255])
json_values = some.recursive(
    some.one_of(some.none(), some.booleans(), some.integers(), some.floats(), texts),
    lambda inner: some.one_of(some.lists(inner, max_size=4),
                              some.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)  # fmt: skip
marks = some.sampled_from(sorted(LAB.cells))
cells = some.fixed_dictionaries(
    {},
    optional={
        "cell_type": some.one_of(some.sampled_from(["code", "markdown", "raw"]), json_values),
        "source": some.one_of(texts, some.lists(texts, max_size=3), json_values),
        "id": some.one_of(marks, json_values),
        "metadata": some.one_of(
            marks.map(lambda name: {"nbgrader": {"grade_id": name}}), json_values
        ),
        "attachments": json_values,
        "outputs": json_values,
    },
)  # fmt: skip
notebooks = some.fixed_dictionaries(
    {"cells": some.one_of(some.lists(cells, max_size=6), json_values)},
    optional={"nbformat": some.one_of(some.integers(0, 5), json_values),
              "worksheets": json_values, "metadata": json_values},
).map(lambda content: json.dumps(content).encode("utf-8", "replace"))  # fmt: skip


@contextmanager
def budget(length):
    began = time.process_time()
    yield
    spent = time.process_time() - began
    assert spent < SECONDS + SECONDS_PER_BYTE * length, f"{spent:.2f} s for {length} bytes"


@fuzzed
@hypothesis.given(some.lists(some.lists(names, min_size=1, max_size=4).map(tuple), max_size=6))
def test_names(paths):
    with budget(sum(map(len, map(str, paths)))):
        sound = [parts for parts in paths if not odd_path(parts)]
        claims = SourceLayout(sound).claims(sound)
        assert len(claims) == len(sound)
        for parts in paths:
            lab_by_name(parts)
            for name in parts:
                assert safe_id(name) == safe_id(safe_id(name))
                assert not set(clean_name(name)) & set('<>&"\n\0')
                assert "\n" not in one_line(name) and "\x1b" not in clean(name)
                assert csv_safe(name)[:1] not in tuple("=+-@")
                normalize_name(name), split_name(name)


@fuzzed
@hypothesis.given(
    some.one_of(some.binary(max_size=200), texts.map(lambda t: t.encode("utf-8", "replace")))
)
def test_times(stamp):
    with budget(len(stamp)):
        when = parse_timestamp(stamp)
        assert when is None or when.tzinfo


@fuzzed
@hypothesis.given(some.one_of(notebooks, some.binary(max_size=500)))
def test_notebooks(released, data):
    with budget(len(data)):
        language_of(data)
        intake = rebuild(data, released[LAB.name], LAB)
        assert intake.answers.keys() == {exercise.id for exercise in LAB.exercises}
        try:
            lab_of_cells(data)
        except NotANotebook as error:
            assert str(error)


@fuzzed
@hypothesis.given(
    some.dictionaries(names, some.one_of(some.binary(max_size=200), notebooks), max_size=5),
    some.lists(some.tuples(some.integers(0, 5_000), some.integers(0, 255)), max_size=8),
)
def test_archives(tmp_path_factory, files, flips):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name or "x"), content)
    data = bytearray(packed.getvalue())
    for place, byte in flips:
        data[place % len(data)] = byte
    path = tmp_path_factory.mktemp("zip") / "x.zip"
    path.write_bytes(data)
    with budget(len(data)):
        for found in files_of(path):
            assert found.data is None or isinstance(found.data, bytes)
    assert [each.name for each in path.parent.iterdir()] == ["x.zip"]
