"""The cases of verdicts.py, taken from the course and its tests when `--freeze` runs.

Needed once: when the tests that it reads are rewritten, this file goes and the cases stay.
"""

from __future__ import annotations

import base64
import gzip
import inspect
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import pytest

from labkit.author.mistakes import mistakes_of
from labkit.author.reference import reference_block
from labkit.core import cells
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS, NOTEBOOKS

TESTS = ROOT / "tests" / "course"
OWN = {"variants": ROOT / "solutions" / "variants", "own": TESTS / "soundness/transformers_own"}
FIRST, LAST = LABS[0], next(lab for lab in LABS if lab.module == "decoder")


def collect_cases():
    """{kind: {name: case}}; a case is what is handed in, and what it was made for."""
    sys.path.insert(0, str(TESTS))
    from forms import FORMS

    found = defaultdict(dict)
    for lab in NOTEBOOKS:
        for kind, exercise, title, cell, about in answers_to(lab):
            name, place = f"{exercise.id} {title}", {"lab": lab.name, "exercise": exercise.id}
            assert name not in found[kind], name
            practice = {} if lab in LABS else {"practice": True}  # nothing in it is graded
            found[kind][name] = {**place, "cell": cell, **about, **practice}
    for name, form in FORMS.items():
        found["forms"][name] = {"lab": FIRST.name, "sources": form.sources}
    found["attacks"] |= attacks()
    found["bytes"] |= odd_bytes()
    found["assembly"] |= planted_parts()
    return dict(found)


def answers_to(lab):
    """(kind, exercise, title, cell, what else is known) of each answer to a lab's exercises."""
    for exercise in lab.exercises:
        block = reference_block(lab, exercise)
        yield "stubs", exercise, exercise.title, cells.stub(block, exercise), {}
        yield "references", exercise, exercise.title, cells.plain(block), {}
        for title, cell in nonsense(exercise):
            yield "nonsense", exercise, title, cell, {}
    for kind, folder in OWN.items():
        path = folder / f"{lab.module}.py"
        for key, block in cells.split(path.read_text()) if path.exists() else ():
            if key:
                title = block.split("\n")[0].split(": ")[1]
                yield kind, lab.exercise(key), title, block, {}
    for mistake in mistakes_of(lab) if lab.exercises else ():
        about = {"mistake": mistake.name, "sentence": mistake.sentence, "costs": mistake.costs}
        title = f"{mistake.symbol}: {mistake.name}"
        yield "mistakes", mistake.exercise, title, mistake.cell, about


def nonsense(exercise):
    from soundness.test_soundness import NONSENSE

    symbol = exercise.symbols[0]
    for title, body in NONSENSE.items():
        if symbol[0].isupper():
            yield (
                title,
                (
                    f"class {symbol}(nn.Module):\n    def __init__(self, *args, **kwargs):\n"
                    "        super().__init__()\n"
                    f"    def forward(self, *args, **kwargs):\n        {body}\n"
                ),
            )
        else:
            yield title, f"def {symbol}(*args, **kwargs):\n    {body}\n"


def attacks():
    """Cells in whose table of canaries, `aim`, each value is '<its name>'."""
    from attacks import gathered
    from attacks.on_people import RAISED
    from attacks.world import World

    names = re.findall(r'^ +"(\w+)": ', inspect.getsource(World.aim), re.MULTILINE)
    aim = {name: f"<{name}>" for name in names}
    found = {
        name: {"cell": attack.cell(aim), "tries": attack.tries, "stopped by": attack.by}
        for name, attack in gathered().items()
    }
    for name, text in RAISED.items():
        raising = f"Oh = type({text!r}, (Exception,), {{}})\nraise Oh({text!r})\n"
        first = cells.directive(FIRST.exercises[0])
        found[f"raises {name}"] = {"cell": f"{first}\n{raising}", "tries": "repaints a page"}
    place = {"lab": FIRST.name, "exercise": FIRST.exercises[0].id}
    return {name: {**place, **case} for name, case in found.items()}


def odd_bytes():
    """Files that are no notebook, packed."""
    from attacks.on_intake import BYTES

    with patch("time.localtime", lambda *_: time.gmtime(10**9)):  # a zip says when
        packed = {name: gzip.compress(make(), mtime=0) for name, make in BYTES.items()}
    texts = {name: base64.b64encode(data).decode() for name, data in packed.items()}
    return {name: {"lab": FIRST.name, "gzip": text} for name, text in texts.items()}


def planted_parts():
    """What the tests of the assembly put together, noted while they run."""
    notes = Notes()
    path = TESTS / "grading" / "test_assembly.py"
    code = pytest.main([str(path), "-q", "-p", "no:cacheprovider", "--no-header"], [notes])
    assert code == 0, "the tests of the assembly fail: nothing to record"
    return notes.cases


class Notes:
    """A pytest plugin: listens to the two functions by which the tests assemble."""

    def __init__(self):
        self.cases, self.test = {}, ""

    def pytest_collection_finish(self, session):
        module = session.items[0].module
        for name, way in (("assembled", "home"), ("graded", "graded")):
            setattr(module, name, self.noting(getattr(module, name), way, module.RIGHT))

    def pytest_runtest_call(self, item):
        self.test = item.name.removeprefix("test_")

    def noting(self, function, way, right):
        def call(*args, **changed):
            answers = changed if way == "graded" else changed_cells(changed, right)
            name = f"{self.test} {sum(key.startswith(self.test) for key in self.cases)}"
            self.cases[name] = {"lab": LAST.name, "way": way, "answers": answers}
            return function(*args, **changed)

        return call


def changed_cells(changed, right):
    """{exercise: cell} of what differs in these modules; only cells of exercises may."""
    found = {}
    for module, text in changed.items():
        before, after = (dict(cells.split(source)) for source in (right[module], text))
        differ = {key for key in before if before[key] != after.get(key)}
        assert None not in differ and before.keys() == after.keys(), module
        found |= {key: after[key] for key in differ}
    return found


if __name__ == "__main__":
    sys.exit(f"python {Path(__file__).with_name('verdicts.py')} --freeze")
