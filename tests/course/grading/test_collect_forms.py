"""Whose is it, of which lab, in which form: a row for each odd way in which work arrives."""

import csv
import io
import json
import os
import tarfile
from datetime import datetime, timezone

import nbformat
import pytest
from nbconvert.exporters import PythonExporter
from nbformat.v4 import new_markdown_cell
from rich.console import Console
from typer.testing import CliRunner

from labkit.author.reference import reference_block
from labkit.cli import app
from labkit.core import cells
from labkit.core.paths import NOTEBOOKS, ROOT
from labkit.core.syllabus import LABS, UNGRADED
from labkit.grading.class_report.report import write_reports
from labkit.grading.collect import contents, deliver, table
from labkit.grading.collect.identify import Identity
from labkit.grading.collect.roster import Roster, read_roster
from labkit.grading.collect.unsettled import UnsettledFiles
from labkit.grading.judge.graded import GradedSubmission, zero
from labkit.grading.judge.intake import MAX_NOTEBOOK, cell_called, rebuild
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError, RosterEntry
from labkit.grading.nbgrader.graded_notebook import graded_notebook, remarks_on
from labkit.grading.run.results import Results
from tests.course.grading.test_collect import notebook, zipped

LAB, SECOND, THIRD, MOE = LABS[0], LABS[1], LABS[2], LABS[4]
NO_POINTS = GradedSubmission(tuple(zero(each, "no points") for each in LAB.exercises))
TOUR = (NOTEBOOKS / f"{UNGRADED[0].name}.ipynb").read_bytes()
FIRST = LAB.exercises[0]
ANSWER = cells.plain(reference_block(LAB, FIRST))
MODULE = (ROOT / "tinyllm" / "rmsnorm.py").read_text()
ANSWERED = cells.with_block(MODULE, FIRST, ANSWER).encode()
BARE = ANSWER.split("\n", 1)[1]  # without its directive


def nb(mark="", lab=LAB, **answers):
    """A notebook with answers: 1-1=text."""
    content = json.loads(notebook(mark, lab))
    for cell in content["cells"]:
        cell["source"] = answers.get(cell["id"].replace("-", "_"), cell["source"])
    return json.dumps(content).encode()


DONE = nb("done", ex_1_1=ANSWER, written_1_a="Because.")


def tarred(files, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def script(kind):
    """The notebook as nbconvert and jupytext write it."""
    marked = json.dumps({"grade": True, "grade_id": "written-1-a"})
    if kind == "nbconvert":
        sources = ["import torch", ANSWER, "check('1.1')"]
        parts = [f"# In[{n}]:\n\n\n{text}\n" for n, text in enumerate(sources, 1)]
        return "\n\n".join(["#!/usr/bin/env python", "# # Lab 01", *parts]).encode()
    if kind == "percent":
        return (f"# %% [markdown]\n# # Lab 01\n\n# %%\nimport torch\n\n# %% nbgrader="
                f'{{"grade_id": "ex-1-1"}}\n{ANSWER}\n\n# %%\ncheck("1.1")\n\n'
                f"# %% [markdown] nbgrader={marked}\n# Because.\n").encode()  # fmt: skip
    head = "# ---\n# jupyter:\n#   jupytext:\n#       format_name: light\n# ---\n"
    return (f"{head}\n# # Lab 01\n\n# +\nimport torch\n\n# + nbgrader=\n{ANSWER}\n"
            f'# -\n\n# +\ncheck("1.1")\n# -\n').encode()  # fmt: skip


@pytest.fixture
def take(course, tmp_path):
    """Collects files as a folder (`in`), or as a zip of that name."""

    def take(files, name="in", **options):
        path = tmp_path / name
        if name.endswith(".zip"):
            path.write_bytes(zipped(files))
        for part, data in {} if name.endswith(".zip") else files.items():
            (path / part).parent.mkdir(parents=True, exist_ok=True)
            (path / part).write_bytes(data)
        return deliver.collect(course, [path], **options)

    return take


def handed_in(course, lab=LAB):
    """{learner: the notebook that counts}."""
    paths = (course.root / "submitted").glob(f"*/{lab.name}/{lab.name}.ipynb")
    return {path.parts[-3]: path.read_bytes() for path in paths}


def answers(data, lab=LAB):
    """What the judge will read of it."""
    released = nbformat.read(NOTEBOOKS / f"{lab.name}.ipynb", as_version=4)
    taken = rebuild(data, released, lab)
    return {key for key, text in taken.answers.items() if text}, taken


# In which form

READ = {
    "01_rmsnorm.ipynb": DONE,
    "01_rmsnorm.json": DONE,
    "01_rmsnorm.ipynb.json": DONE,
    "01_rmsnorm.ipynb.txt": DONE,
    "01_rmsnorm": DONE,
    "UTF-16.ipynb.txt": DONE.decode().encode("utf-16"),
    "01_rmsnorm.tar.gz": tarred({"01_rmsnorm.ipynb": DONE}),
    "01_rmsnorm.tgz": tarred({"./mine/01_rmsnorm.ipynb": DONE}),
    "01_rmsnorm.tar": tarred({"01_rmsnorm.ipynb": DONE}, "w"),
    "a zip.ipynb": zipped({"01_rmsnorm.ipynb": DONE}),
    "homework.zip": zipped({"01_rmsnorm.ipynb": DONE}),
    "03_gqa.ipynb": DONE,  # the right cells under another lab's name
    "moe.ipynb": DONE,
    "nbconvert.py": script("nbconvert"),
    "jupytext.py": script("percent"),
    "jupytext light.py": script("light"),
    "nbconvert.txt": script("nbconvert"),
    "rmsnorm.py": ANSWERED,
    "lost its marks.py": f"import torch\n\n{BARE}\n\n\nclass RMSNorm:\n    pass\n".encode(),
    "project.zip": zipped({
        "tinyllm-main/notebooks/01_rmsnorm.ipynb": nb("blank"),
        "tinyllm-main/submissions/01_rmsnorm.ipynb": DONE,
        "tinyllm-main/tinyllm/rmsnorm.py": ANSWERED,
        "tinyllm-main/labkit/model/x.py": b"def generate(model):\n    pass\n",
        "tinyllm-main/checkpoints/x/config.json": b"{}",
    }),
}  # fmt: skip


@pytest.mark.parametrize("asked", [None, LAB], ids=["", "--lab"])
def test_contents_beat_names(course, take, asked):
    """Each form once, by a learner of its own in an export of Moodle."""
    files = {f"L{n} Doe_70{n}_assignsubmission_file_/{name}": data
             for n, (name, data) in enumerate(READ.items(), 10)}  # fmt: skip
    take(files, "export.zip", lab=asked)
    found = handed_in(course)
    for number, name in enumerate(READ, 10):
        got, intake = answers(found.pop(f"L{number} Doe"))
        assert "1.1" in got, name
        if name.endswith("jupytext.py"):
            assert any(cell.source == "Because." for cell in intake.notebook.cells)
    assert not found and not [path for lab in LABS[1:] for path in handed_in(course, lab)]


def nameless(*, asked=True, joined=False):
    """The notebook with two written answers, whose cells have no names."""
    content = nbformat.reads(nb(ex_1_1=ANSWER, written_1_a="Because.\n\n- of b"), 4)
    for cell in content.cells:
        cell.metadata, named = {}, cell.pop("id")
        if named == "written-1-a" and not asked:
            content.cells[content.cells.index(cell) - 1].source = "## Mine"
        if named == "written-1-b" and joined:
            content.cells[content.cells.index(cell) - 1].source += "\n\nFor c."
    content.cells.insert(0, new_markdown_cell("A note."))
    content.nbformat_minor = 4
    return content


BOTH = {"1.a": "Because.\n\n- of b", "1.b": "For c."}
WRITTEN = {  # the file; written answers; what the instructor is told
    "by their places": ("x.ipynb", nbformat.writes(nameless(joined=True)), BOTH),
    "nbconvert": ("x.py", PythonExporter().from_notebook_node(nameless(joined=True))[0], BOTH),
    "no question": ("x.ipynb", nbformat.writes(nameless(asked=False)), {}),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_written_answers_without_a_name_are_kept_or_told(form):
    name, text, expected = WRITTEN[form]
    released = nbformat.read(NOTEBOOKS / f"{LAB.name}.ipynb", as_version=4)
    data = contents.read(name, text.encode()).data
    notebook = graded_notebook(data, released, LAB, NO_POINTS)
    texts = {q.id: cell_called(notebook, q.answer_cell).source for q in LAB.questions}
    assert {key: text for key, text in texts.items() if text != cells.EMPTY_ANSWER} == expected
    remarks = remarks_on(data, notebook, LAB)
    assert expected or "cell 1, " in remarks[0]
    assert not expected or not remarks


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("essay.pdf", b"%PDF-1.7", "PDF"),
        ("01_rmsnorm.ipynb", b"%PDF-1.7", "PDF"),
        ("work.rar", b"Rar!\x1a", ".rar"),
        ("01_rmsnorm.html", b"<html>", "web page"),
        ("01_rmsnorm.docx", b"PK\x03\x04", "no notebook"),
        ("01_rmsnorm.ipynb", bytes(MAX_NOTEBOOK + 1), "too large"),
        ("01_rmsnorm.ipynb", DONE[:3000], "not JSON"),
        ("01_rmsnorm.ipynb", b"", "empty"),
        ("work.zip", b"PK\x03\x04 broken", "not a readable zip"),
        ("work.tar.gz", b"\x1f\x8b broken", "not a readable zip"),
        ("bomb.tar.gz", tarred({"a": bytes(3 << 20)}), "unpacks to more than"),
        ("rmsnorm.py", MODULE.encode(), "no answer"),
        ("01_rmsnorm.ipynb", nb("", THIRD), "a notebook of 03_gqa"),
        ("03_gqa.ipynb", nb("", THIRD), "a notebook of 03_gqa"),
        ("00_tour.ipynb", TOUR, "a notebook of 00_tour"),
        ("my_code.py", b"print()", "no notebook"),
        ("settings.json", b'{"a": 1}', "no notebook"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # not megabytes of data
)
def test_what_cannot_be_graded_is_told_with_its_learner(course, take, name, data, why):
    lines = take({f"Ann Lee_7001_assignsubmission_file_/{name}": data,
                  "Bob Day_7002_assignsubmission_file_/01_rmsnorm.ipynb": DONE},
                 lab=LAB)  # fmt: skip
    assert set(handed_in(course)) == {"Bob Day"}
    (line,) = [line for line in lines if line.state in table.TROUBLE]
    assert line.learner == "Ann Lee" and why in line.note
    files = UnsettledFiles(course.root)
    said = files.why("Ann Lee", LAB.name)
    assert said.startswith(f"handed in {name}, which cannot be graded: ") and why in said
    page = course.root / "feedback" / "Ann Lee" / LAB.name / f"{LAB.name}.html"
    assert name in page.read_text() and not files.why("Bob Day", LAB.name)
    take({"Ann Lee_7001_assignsubmission_file_/x/01_rmsnorm.ipynb": DONE}, "later.zip")
    assert not UnsettledFiles(course.root).open() and "Ann Lee" in handed_in(course)


def test_what_lies_beside_a_notebook_is_no_matter(course, take):
    place = "Ann Lee_7001_assignsubmission_file_"
    lines = take({f"{place}/01_rmsnorm.ipynb": DONE, f"{place}/essay.pdf": b"%PDF-1",
                  f"{place}/00_tour.ipynb": TOUR, f"{place}/02_rope.ipynb": nb("", SECOND)},
                 lab=LAB)  # fmt: skip
    assert list(handed_in(course)) == ["Ann Lee"] and handed_in(course)["Ann Lee"] == DONE
    assert not [line for line in lines if line.state in table.TROUBLE]
    assert not UnsettledFiles(course.root).entries


def test_a_blank_notebook_is_completed_from_the_package_beside_it(course, take):
    own = nb("own", ex_1_1=ANSWER.replace("eps", "epsilon"))
    lines = take({"ann/01_rmsnorm.ipynb": nb("blank", written_1_a="Mine."),
                  "ann/rmsnorm.py": ANSWERED,
                  "bob/01_rmsnorm.ipynb": own, "bob/rmsnorm.py": ANSWERED})  # fmt: skip
    got, intake = answers(handed_in(course)["ann"])
    assert got == {"1.1"} and any(cell.source == "Mine." for cell in intake.notebook.cells)
    assert handed_in(course)["bob"] == own
    assert any("1.1 from rmsnorm.py" in line.note for line in lines if line.learner == "ann")


def test_the_tour_is_nobodys_name(course, take):
    take({"dora.zip": zipped({"01_rmsnorm.ipynb": DONE, "00_tour.ipynb": TOUR}),
          "00_tour.ipynb": TOUR, "eve.zip": zipped({"01_rmsnorm.ipynb": nb("e")})},
         lab=LAB)  # fmt: skip
    assert set(handed_in(course)) == {"dora", "eve"} and handed_in(course)["dora"] == DONE


# Whose

A, B, C = nb("a"), nb("b"), nb("c")
INBOUND = "{}+01_rmsnorm+2026-03-0{} 12:00:00 UTC+x"
GRADESCOPE = """
submission_11:
  :submitters:
  - :name: Ann Lee
    :sid: '17'
    :email: ann@x.edu
  :created_at: 2026-03-01 10:00:00 Z
submission_12:
  :submitters:
  - :name: Bob Day
    :sid:
    :email: bob@x.edu
  - :name: Cem Oz
    :email: cem@x.edu
  :created_at: 2026-03-01 11:00:00 Z
"""
WHOSE = {  # files; whose they are; which are nobody's
    "a class's folder": ({"class1A/ann/01_rmsnorm.ipynb": A, "class1A/bob/x.ipynb": B},
                         {"ann": A, "bob": B}, 0),
    "two folders down": ({"y/z/ann/01_rmsnorm.ipynb": A, "y/z/bob/x.ipynb": B,
                          "y/z/notes.txt": b"of the instructor", "y/README.md": b""},
                         {"ann": A, "bob": B}, 0),
    "one of them has a PDF": ({"xy/ann/01_rmsnorm.ipynb": A, "xy/bob/essay.pdf": b"%PDF"},
                              {"ann": A}, 0),
    "groups": ({"groupA/ann/01_rmsnorm.ipynb": A, "groupA/bob/01_rmsnorm.ipynb": B,
                "groupB/carl/01_rmsnorm.ipynb": C}, {"ann": A, "bob": B, "carl": C}, 0),
    "groups of odd names": ({"xx/ann/01_rmsnorm.ipynb": A, "xx/bob/01_rmsnorm.ipynb": B,
                             "carl/01_rmsnorm.ipynb": C}, {"carl": C}, 2),
    "groups of files": ({"xx/ann_01_rmsnorm.ipynb": A, "xx/bob_01_rmsnorm.ipynb": B,
                         "carl/01_rmsnorm.ipynb": C}, {"carl": C}, 2),
    "zips of groups": ({"xx.zip": zipped({"ann/01_rmsnorm.ipynb": A, "bob/x.ipynb": B}),
                        "carl.zip": zipped({"01_rmsnorm.ipynb": C})}, {"carl": C}, 2),
    "one without a name": ({"anna_01_rmsnorm.ipynb": A, "01_rmsnorm.ipynb": B,
                            "01_rmsnorm - Ben.ipynb": C}, {"anna": A, "Ben": C}, 1),
    "Gradescope": ({"submission_11/01_rmsnorm.ipynb": A, "submission_12/01_rmsnorm.ipynb": B,
                    "submission_metadata.yml": GRADESCOPE.encode()},
                   {"Ann Lee": A, "Bob Day": B, "Cem Oz": B}, 0),
    "Gradescope, a common folder": (
        {"assignment_9_export/submission_11/01_rmsnorm.ipynb": A,
         "assignment_9_export/submission_metadata.yml": GRADESCOPE.encode()},
        {"Ann Lee": A}, 0),
    "Gradescope without its list": ({"submission_11/01_rmsnorm.ipynb": A,
                                     "submission_12/01_rmsnorm.ipynb": B}, {}, 2),
    "nbgrader's exchange": (
        {f"inbound/{INBOUND.format('ann', 1)}/01_rmsnorm.ipynb": A,
         f"inbound/{INBOUND.format('ann', 2)}/01_rmsnorm.ipynb": C,
         f"inbound/{INBOUND.format('bob', 1)}/01_rmsnorm.ipynb": B}, {"ann": C, "bob": B}, 0),
    "two folders of one name": ({"s1/01_rmsnorm/x/x.ipynb": A, "s1/01_rmsnorm/y/x.ipynb": B,
                                 "carl/01_rmsnorm.ipynb": C}, {"carl": C}, 2),
    "somebody's name in one's own folder": (
        {"eve/ann/01_rmsnorm/01_rmsnorm.ipynb": A, "ann/01_rmsnorm/01_rmsnorm.ipynb": B},
        {"eve": A, "ann": B}, 0),
    "an LMS's name in one's own folder": (
        {"eve/ann_111_9999_01_rmsnorm.ipynb": A, "ann/01_rmsnorm.ipynb": B},
        {"eve": A, "ann": B}, 0),
    "Moodle, an inner zip": (
        {"Alice Able_7001_assignsubmission_file_/homework.zip": zipped({"01_rmsnorm.ipynb": A}),
         "Bob Bold_7002_assignsubmission_file_/homework.zip": zipped({"01_rmsnorm.ipynb": B})},
        {"Alice Able": A, "Bob Bold": B}, 0),
    "Moodle, unpacked in a folder": (
        {"in w1/Alice Able_7001_assignsubmission_file_/01_rmsnorm.ipynb": A,
         "in w1/Bob Bold_7002_assignsubmission_file_/ann/01_rmsnorm.ipynb": B},
        {"Alice Able": A, "Bob Bold": B}, 0),
    "Moe and Rope": ({"Moe/homework.ipynb": A, "Rope Smith/01_rmsnorm.ipynb": B,
                      "moe_x.ipynb": C}, {"Moe": A, "Rope Smith": B, "moe_x": C}, 0),
    "ids": ({"s28/01_rmsnorm.ipynb": A, "u28/x.ipynb": B, "s017_01_rmsnorm.ipynb": C},
            {"s28": A, "u28": B, "s017": C}, 0),
    "ids in nbgrader's folders": ({"submitted/s28/01_rmsnorm/01_rmsnorm.ipynb": A,
                                   "submitted/u28/01_rmsnorm/01_rmsnorm.ipynb": B},
                                  {"s28": A, "u28": B}, 0),
    "no ids": ({"lab1/01_rmsnorm.ipynb": A, "hw2/x.ipynb": B, "v2/x.ipynb": C}, {}, 3),
    "no ids either": ({"group3/01_rmsnorm.ipynb": A, "week3/x.ipynb": B, "w12/x.ipynb": C},
                      {}, 3),
    "somebody's name in Moodle's form in one's own": (
        {"Ann Lee_7001_assignsubmission_file_/01_rmsnorm.ipynb": A,
         "Ann Lee_7001_assignsubmission_file_ Eve_7009_assignsubmission_file_/x.ipynb": B},
        {"Ann Lee": A, "Ann Lee_7001_assignsubmission_file_ Eve": B}, 0),
    "two names in Moodle's form": (
        {"Ann Lee_7001_assignsubmission_file_01_rmsnorm.ipynb": A,
         "Eve_7009_assignsubmission_file_Ann Lee_7001_assignsubmission_file_x.ipynb": B},
        {"Ann Lee": A}, 1),
    "Moodle, a name in Canvas's form": (
        {"ann_101_assignsubmission_file_/01_rmsnorm.ipynb": A,
         "ann_111_999_x_105_assignsubmission_file_/01_rmsnorm.ipynb": B},
        {"ann": A, "ann_111_999_x": B}, 0),
    "Canvas, a file in Moodle's form": (
        {"ann_101_201_01_rmsnorm.ipynb": A,
         "eve_102_202_ann_101_assignsubmission_file_01_rmsnorm.ipynb": B},
        {"ann": A, "eve_102_202_ann": B}, 0),
    "one's attempts": ({"ann/01_rmsnorm.ipynb": A, "ann/01_rmsnorm-1.ipynb": A,
                        "bob/01_rmsnorm/final v2.ipynb": B}, {"ann": A, "bob": B}, 0),
    "the same twice": ({"xx/ann/01_rmsnorm.ipynb": A, "xx/bob/01_rmsnorm.ipynb": A,
                        "carl/01_rmsnorm.ipynb": C}, {"xx": A, "carl": C}, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", ["in", "export.zip"], ids=["folder", "zip"])
@pytest.mark.parametrize("case", WHOSE)
def test_whose_it_is(course, take, case, name):
    files, expected, nobodys = WHOSE[case]
    lines = take(files, name)
    assert handed_in(course) == expected
    lost = [line for line in lines if line.state in (table.AMBIGUOUS, table.UNKNOWN)]
    assert len(lost) == nobodys and all("--as" in line.note for line in lost)
    kept = {path.read_bytes() for path in course.root.glob("collected/unknown/**/*.ipynb")}
    assert len(kept) == nobodys
    assert all(line.how for line in lines if line.state == table.NEW)


@pytest.mark.parametrize(
    ("zip_", "inside", "whose"),
    [
        ("ada.zip", {"01_rmsnorm.ipynb": A}, "ada"),
        ("ada.zip", {"tinyllm/notebooks/01_rmsnorm.ipynb": A}, "ada"),
        ("eve.zip", {"ann/01_rmsnorm/01_rmsnorm.ipynb": A,
                     "ann/01_rmsnorm/timestamp.txt": b"2001-01-01 00:00:00 UTC"}, None),
        ("submitted.zip", {"ann/01_rmsnorm/01_rmsnorm.ipynb": A}, "ann"),
        ("ann.zip", {"ann/01_rmsnorm.ipynb": A}, "ann"),
    ],
)  # fmt: skip
def test_a_zip_by_itself(course, take, zip_, inside, whose):
    (line, *_) = take(inside, zip_)
    assert list(handed_in(course)) == ([whose] if whose else [])
    if not whose:
        assert line.state == table.AMBIGUOUS and "eve" in line.note and "ann" in line.note


def test_a_roster_settles_whose_a_zip_is(course, take, monkeypatch):
    people = [RosterEntry("eve", "Eve", "Smith"), RosterEntry("ann", "Ann", "Lee")]
    monkeypatch.setattr(Course, "people", lambda self: people)
    take({"ann/01_rmsnorm.ipynb": A}, "eve.zip")
    take({"Eve Smith/ann/01_rmsnorm.ipynb": B, "week 1/ann/01_rmsnorm.ipynb": C}, "in")
    assert handed_in(course) == {"eve": B, "ann": C}


ANNS = zipped({"ann/01_rmsnorm/01_rmsnorm.ipynb": A})
BY_ROSTER = {  # a source, its files; whose they are; how many are nobody's
    "a clone": ("in", {"lab1-dragon7/ann/01_rmsnorm.ipynb": A,
                       "lab1-bob/01_rmsnorm.ipynb": B}, {"bob": B}, 1),
    "clones": ("in", {"lab-01-rmsnorm-bob/notebooks/01_rmsnorm.ipynb": B,
                      "01_rmsnorm-s1/01_rmsnorm.ipynb": C}, {"bob": B, "s1": C}, 0),
    "clones by short ids": ("in", {"lab-01-rmsnorm-s1/notebooks/01_rmsnorm.ipynb": B,
                                   "lab-01-rmsnorm-7/notebooks/01_rmsnorm.ipynb": C},
                            {"s1": B, "7": C}, 0),
    "clones named by module": ("in", {"rmsnorm-s1/notebooks/01_rmsnorm.ipynb": B,
                                      "rmsnorm-7/notebooks/01_rmsnorm.ipynb": C},
                               {"s1": B, "7": C}, 0),
    "a clone's file": ("in", {"lab1-dragon7/ann_01_rmsnorm.ipynb": A}, {}, 1),
    "a zip among mails": ("in", {"bob.pdf": b"%PDF", "carl.pdf": b"%PDF", "eve.zip": ANNS},
                          {}, 1),
    "a zip in a folder": ("in", {"eve.zip": ANNS}, {}, 1),
    "an export in a folder": ("in", {"eve.zip": zipped({
        "ann_111_1001_01_rmsnorm.ipynb": A, "bob_112_1002_01_rmsnorm.ipynb": B})}, {}, 0),
    "Canvas's name in a zip in a folder": (
        "in", {"eve.zip": zipped({"ann_111_1001_01_rmsnorm.ipynb": A})}, {}, 1),
    "bob's zip in a folder": ("in", {"bob.zip": ANNS}, {"bob": A}, 0),
    "a zip": ("eve.zip", {"ann/01_rmsnorm/01_rmsnorm.ipynb": A}, {}, 1),
    "ids": ("in", {"s1/01_rmsnorm.ipynb": A, "7/01_rmsnorm.ipynb": B}, {"s1": A, "7": B}, 0),
    "nbgrader's folders": ("in", {"submitted/s1/01_rmsnorm/01_rmsnorm.ipynb": A,
                                  "submitted/7/01_rmsnorm/01_rmsnorm.ipynb": B},
                           {"s1": A, "7": B}, 0),
}  # fmt: skip


@pytest.mark.parametrize("case", BY_ROSTER)
def test_only_the_outer_name_is_looked_up_in_the_roster(course, take, monkeypatch, case):
    people = [RosterEntry("ann", "Ann", "Lee"), RosterEntry("bob", "Bob", "Day"),
              RosterEntry("s1", "Cem", "Oz"), RosterEntry("7", "Dora", "Ek")]  # fmt: skip
    monkeypatch.setattr(Course, "people", lambda self: people)
    source, files, expected, nobodys = BY_ROSTER[case]
    take(files, source)
    assert handed_in(course) == expected
    kept = list(course.root.glob("collected/unknown/**/*.ipynb"))
    assert len(kept) == nobodys


def test_an_export_alone_in_a_folder_is_gone_through(course, take):
    take({"export.zip": zipped({"ann_111_1001_01_rmsnorm.ipynb": A,
                                "bob_112_1002_01_rmsnorm.ipynb": B})})  # fmt: skip
    assert handed_in(course) == {"ann": A, "bob": B}


# Namesakes, lists, and by hand

SHEET = (
    "Identifier,Full name,Email address,Status,Grade\n"
    "Participant 7001,王伟,wang1@x.edu,Submitted,\n"
    "Participant 7002,王伟,wang2@x.edu,Submitted,\n"
)
NAMESAKES = {"王伟_7001_assignsubmission_file_/01_rmsnorm.ipynb": A,
             "王伟_7002_assignsubmission_file_/01_rmsnorm.ipynb": B}  # fmt: skip


def test_namesakes_by_moodles_worksheet(course, take, tmp_path):
    (tmp_path / "Grades.csv").write_text(SHEET)
    take(NAMESAKES, "export.zip", roster_file=tmp_path / "Grades.csv")
    assert handed_in(course) == {"wang1": A, "wang2": B}
    later = {name.replace("700", "810"): data for name, data in NAMESAKES.items()}
    (tmp_path / "Grades.csv").write_text(SHEET.replace("700", "810"))
    lines = take(later, "next.zip")  # found beside it
    assert {line.learner for line in lines} == {"wang1", "wang2"}


@pytest.mark.parametrize("inside", [True, False])
def test_a_worksheet_is_found_beside_or_in_the_export(course, take, tmp_path, inside):
    if not inside:
        (tmp_path / "Grades-1.csv").write_text(SHEET, "utf-8-sig")
    take(NAMESAKES | ({"Grades.csv": SHEET.encode()} if inside else {}), "export.zip")
    assert handed_in(course) == {"王伟_wang1": A, "王伟_wang2": B}


LEES = [RosterEntry("ann", "Ann", "Lee"), RosterEntry("eve", "Eve", "Low")]
FORGED = (b"Identifier,Full name,Email address,ID number\n"
          b"Participant 105,Eve Low,ann@x.edu,ann\n")  # fmt: skip


@pytest.mark.parametrize("name", ["in", "export.zip"], ids=["folder", "zip"])
@pytest.mark.parametrize("place", ["", "/"], ids=["flat", "in a folder"])
def test_what_is_handed_in_is_no_worksheet(course, take, monkeypatch, name, place):
    monkeypatch.setattr(Course, "people", lambda self: LEES)
    where = f"Eve Low_105_assignsubmission_file_{place}"
    take({f"Ann Lee_101_assignsubmission_file_{place}01_rmsnorm.ipynb": A,
          f"{where}01_rmsnorm.ipynb": B, f"{where}grades.csv": FORGED}, name)  # fmt: skip
    assert handed_in(course) == {"ann": A, "eve": B}


def test_what_was_handed_in_is_no_worksheet_beside_an_export_either(
    course, take, monkeypatch, tmp_path
):
    monkeypatch.setattr(Course, "people", lambda self: LEES)
    where = "Eve Low_105_assignsubmission_file_"
    (tmp_path / f"{where}grades.csv").write_bytes(FORGED)  # unpacked there
    take({f"{where}01_rmsnorm.ipynb": B}, "export.zip")
    assert handed_in(course) == {"eve": B}


def test_worksheets_that_differ_name_nobody(course, take, monkeypatch, tmp_path):
    monkeypatch.setattr(Course, "people", lambda self: LEES)
    (tmp_path / "Grades.csv").write_bytes(FORGED.replace(b"ann", b"eve"))
    (tmp_path / "Grades (1).csv").write_bytes(FORGED)
    take({"Eve Low_105_assignsubmission_file_/01_rmsnorm.ipynb": B}, "export.zip")
    assert handed_in(course) == {"eve": B}  # by the name


@pytest.mark.parametrize("name", ["eve_102_202_01_rmsnorm.csv", "eve_102_202_x.zip"])
def test_a_table_that_is_handed_in_is_told(course, take, name):
    data = b"a,b\n1,2\n"
    data = zipped({"01_rmsnorm.csv": data}) if name.endswith(".zip") else data
    lines = take({"ann_101_201_01_rmsnorm.ipynb": A, name: data}, "export.zip")
    (line,) = [line for line in lines if line.learner == "eve"]
    assert line.state == table.UNGRADED and "it is no notebook" in line.note


def test_two_numbers_for_one_learner_are_a_question(course, take, monkeypatch):
    monkeypatch.setattr(Course, "people", lambda self: LEES)
    files = {"Ann Lee_101_assignsubmission_file_/01_rmsnorm.ipynb": A,
             "ANN LEE_105_assignsubmission_file_/01_rmsnorm.ipynb": B}  # fmt: skip
    lines = take(files, "export.zip")
    assert [line.state for line in lines] == [table.AMBIGUOUS] * 2 and not handed_in(course)
    assert all("several people" in line.note and "--as" in line.note for line in lines)
    (kept,) = [one.kept for one in UnsettledFiles(course.root).open() if "Ann Lee" in one.file]
    deliver.collect(course, [course.root / kept], learner="ann")
    files["ANN LEE_105_assignsubmission_file_/01_rmsnorm.ipynb"] = C  # once more
    lines = take(files, "export.zip")
    assert handed_in(course) == {"ann": A}
    assert {line.state for line in lines} == {table.SAME, table.SKIPPED}


def test_a_worksheet_of_another_assignment_names_nobody(course, take, tmp_path):
    (tmp_path / "Grades.csv").write_text(SHEET.replace("王伟", "Somebody Else"))
    take(NAMESAKES, "export.zip")
    assert handed_in(course) == {"王伟_7001": A, "王伟_7002": B}


@pytest.mark.parametrize(
    "text",
    [
        "Name,SID,Email,Total Score\nAnn Lee,17,ann@x.edu,3\n",
        "First Name,Last Name,SID,Email\nAnn,Lee,17,ann@x.edu\n",
        "First name,Surname,ID number,Email address\nAnn,Lee,17,ann@x.edu\n",
        "Student,ID,Section\nPoints Possible,,\n\"Lee, Ann\",17,A\n",
    ],
    ids=["Gradescope", "Gradescope's names", "Moodle's grades", "Canvas"],
)  # fmt: skip
def test_an_lms_gradebook_is_a_roster(tmp_path, text):
    (tmp_path / "r.csv").write_text(text)
    ((person,), _) = read_roster(tmp_path / "r.csv")
    assert (person.id, person.name) == ("17", "Ann Lee")
    assert Roster([person]).find(Identity(("lee ann",))) == ({"17"}, "lee ann")


@pytest.mark.parametrize("known", [RosterEntry("17", "Ann", "Lee", lms_user_id="900"),
                                   RosterEntry("alee", "A.", "Lee"),
                                   RosterEntry("x", "A.", "L.", "ann@x.edu")])  # fmt: skip
def test_whoever_canvas_gives_another_id_keeps_theirs(tmp_path, known):
    text = 'Student,ID,SIS User ID,SIS Login ID,Email\n"Lee, Ann",900,17,alee,ann@x.edu\n'
    (tmp_path / "r.csv").write_text(text + '"Lee, Bo",,18,blee,\n')
    people, _ = read_roster(tmp_path / "r.csv", [known, RosterEntry("z", "No", "Body")])
    assert [person.id for person in people] == [known.id, "blee"]


def test_what_is_nobodys_is_given_to_somebody(course, take, monkeypatch):
    people = [RosterEntry("s001", "王", "伟"), RosterEntry("s002", "王", "伟")]
    monkeypatch.setattr(Course, "people", lambda self: people)
    lines = take(NAMESAKES, "export.zip")
    assert {line.state for line in lines} == {table.AMBIGUOUS} and not handed_in(course)
    folders = {path.name for path in (course.root / "collected" / "unknown").iterdir()}
    assert folders == {"王伟_7001", "王伟_7002"}
    kept = course.root / UnsettledFiles(course.root).open()[0].kept
    (line,) = deliver.collect(course, [kept], learner="s001")
    assert handed_in(course) == {"s001": A} and line.how == "--as" and line.when
    assert len(UnsettledFiles(course.root).open()) == 1
    again = take(NAMESAKES, "export.zip")
    assert [line.state for line in again] == [table.AMBIGUOUS, table.SAME]
    deliver.collect(course, [course.root / "collected/unknown/王伟_7002"], learner="s002")
    assert handed_in(course) == {"s001": A, "s002": B}
    assert not UnsettledFiles(course.root).open()
    with pytest.raises(CourseError, match="not on the roster"):
        deliver.collect(course, [kept], learner="s009")


def test_what_is_disputed_is_not_nothing(course, take, monkeypatch):
    people = [RosterEntry("t1", "Tim", "Ek"), RosterEntry("c1", "Carl", "Day")]
    monkeypatch.setattr(Course, "people", lambda self: people)
    files = {"Tim Ek/try A/x.ipynb": A, "Tim Ek/try B/x.ipynb": B, "Carl Day/x.ipynb": C}
    take(files)
    assert handed_in(course) == {"c1": C}
    assert "different notebooks" in UnsettledFiles(course.root).why("t1", LAB.name)
    kept = [one.kept for one in UnsettledFiles(course.root).open() if "try B" in one.file]
    deliver.collect(course, [course.root / kept[0]], learner="t1")
    assert handed_in(course) == {"c1": C, "t1": B} and not UnsettledFiles(course.root).open()
    take(files)
    assert handed_in(course) == {"c1": C, "t1": B}


@pytest.mark.parametrize("then", ["the right name", "the other lab", "by hand"])
def test_a_wrong_name_is_settled_by_either_lab(course, take, then):
    def look():
        return [one.lab for one in UnsettledFiles(course.root).open()]

    wrong = {"ann/02_rope.ipynb": A}
    take(wrong, "export.zip", lab=LAB)
    assert look() == []
    lines = take(wrong, "export.zip")
    assert look() == [SECOND.name] and table.UNGRADED in {line.state for line in lines}
    if then == "by hand":
        path = course.root / "submitted" / "ann" / SECOND.name / f"{SECOND.name}.ipynb"
        path.parent.mkdir()
        path.write_bytes(nb("r", SECOND))
        os.utime(path, (9e8, 9e8))
    else:
        lab = LAB if then == "the right name" else SECOND
        take({f"ann/{lab.name}.ipynb": nb("r", lab)}, "exports.zip", replace_newer=True)
    assert look() == []
    if then != "the right name":
        assert table.UNGRADED not in {line.state for line in take(wrong, "export.zip")}


def test_the_table_breaks_no_name_on_80_columns():
    seen = Console(record=True, width=80, file=io.StringIO())
    when = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    line = table.Line("export.zip/a/long/name.ipynb", table.NEW, "alexandra_papadopoulou",
                      "07_generation", when, "its name says 01_rmsnorm", "Canvas")  # fmt: skip
    table.show([line], [], seen)
    text = seen.export_text()
    assert all(each in text for each in (line.learner, line.lab, "2026-03-01 12:00"))


def test_whatever_a_file_is_called_it_is_given_to_one(course, take):
    take({"doe_111_1001_03_gqa.ipynb": A, "essay.pdf": b"%PDF"}, learner="kim")
    assert handed_in(course) == {"kim": A}


# What the instructor reads


def test_what_needs_a_look_comes_last_and_is_counted(course, tmp_path):
    runner, where = CliRunner(), ["--course", str(course.root)]
    first = {f"p{n:02}x_{n}11_1{n:02}1_01_rmsnorm.ipynb": nb(f"{n}") for n in range(10, 80)}
    odd = {"Ann_991_9001_essay.pdf": b"%PDF", "Bob_992_9002_03_gqa.ipynb": nb("", THIRD)}
    (tmp_path / "export.zip").write_bytes(zipped(odd | first))
    arguments = [str(tmp_path / "export.zip"), "--lab", "rmsnorm", *where]
    done = runner.invoke(app, ["collect", *arguments])
    assert done.exit_code == 1
    *_, last = done.output.strip().splitlines()
    assert last == "2 of 72 files need a look"
    assert done.output.index("70 new") < done.output.index("essay.pdf")
    (tmp_path / "next.zip").write_bytes(zipped({"Cem_993_9003_01_rmsnorm.rar": b"Rar!"}))
    done = runner.invoke(app, ["collect", str(tmp_path / "next.zip"), *where])
    assert done.output.strip().splitlines()[-1] == "1 of 1 files needs a look"
    assert "essay.pdf" in done.output and "2 from earlier" in done.output
    with (course.root / "collected" / "last.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["learner"] == "Cem" and row["name from"] == "Canvas's file name"


def test_reports_do_not_say_that_nothing_was_handed_in(course, take, monkeypatch):
    take({"Ann Lee_7001_assignsubmission_file_/essay.pdf": b"%PDF",
          "Kim_7002_assignsubmission_file_/00_tour.ipynb": TOUR}, lab=LAB)  # fmt: skip
    results = Results(course.root, LAB)
    results.put("key", NO_POINTS)
    results.put_class({"bob": "key"})
    monkeypatch.setattr(Course, "standings", lambda self, lab: {})
    write_reports(course)
    said = "handed in essay.pdf, which cannot be graded: a PDF"
    for name in ("01_rmsnorm.html", "01_rmsnorm.csv"):
        text = (course.root / name).read_text("utf-8-sig")
        assert said in text and "othing handed in" not in text
    assert "needs a look: 2" in (course.root / "class.html").read_text()


def test_sourcesthat_two_labs_share_leave_it_to_the_name():
    both = nb("", THIRD)[:-1] + b"}"
    content = json.loads(both)
    content["cells"] += json.loads(A)["cells"]
    assert contents.read("x.ipynb", json.dumps(content).encode()).lab is None
