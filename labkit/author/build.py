"""Everything derived, from its one source.

    solutions/X.py                 -> tinyllm/X.py                  the skeleton
    solutions/X.py + syllabus      -> notebooks/NN_X.ipynb          stubs, badges, check cells
    solutions + tests/visible      -> tests/visible/recorded/X      recorded answers
    all of it, on demand           -> course/source/NN_X/...        the instructor edition

Prose and figures are authored in the notebooks; the build fills in only the cells it owns.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from labkit.author.mistakes import live_reference
from labkit.author.reference import BuildError, reference, reference_block, references
from labkit.checks import assembly
from labkit.checks.compare import agree
from labkit.checks.reference import FOLDER as RECORDED
from labkit.checks.reference import RecordingReference
from labkit.checks.runner import run_checks
from labkit.core import cells
from labkit.core.paths import ROOT
from labkit.core.syllabus import LABS, NOTEBOOKS, Exercise, Lab, Question
from labkit.learner import hints
from labkit.learner.workspace import STUBS, stubs
from labkit.sandboxed.wire import outcome_from, pack, unpack

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
MAP = """\
# Where this lab sits in the whole of Qwen3
from labkit.learner.figures.architecture import architecture

architecture("{}")"""
BADGE = re.compile(r"\A(?:### Exercise[^\n]*\n+)?(?:\*[^\n]*minutes[^\n]*\*\n*)?")


@dataclass
class Derived:
    """One file of the build: its path, and what it should hold."""

    path: Path
    content: bytes

    @property
    def stale(self) -> bool:
        if not self.path.exists():
            return True
        before = self.path.read_bytes()
        if self.path.suffix == ".safetensors":
            return not same_record(before, self.content)
        return before != self.content


def build(check: bool = False) -> list[Path]:
    """Write what is stale and return it; with `check`, only return it."""
    stale = [derived for derived in everything() if derived.stale]
    if not check:
        for derived in stale:
            refuse_to_lose_answers(derived.path)
            derived.path.parent.mkdir(parents=True, exist_ok=True)
            derived.path.write_bytes(derived.content)
    return [derived.path for derived in stale]


def refuse_to_lose_answers(path: Path) -> None:
    """Raise if the build would overwrite a module of tinyllm/ that somebody has filled in."""
    if path.parent != ROOT / "tinyllm" or not path.exists():
        return
    blocks, known = cells.split(path.read_text("utf-8")), stubs() if STUBS.exists() else {}
    filled_in = [
        key for key, text in blocks if key and not cells.is_empty(text, known.get(key))
    ]
    if filled_in:
        raise BuildError(
            f"tinyllm/{path.name} holds answers to {', '.join(filled_in)}, which the build "
            f"would overwrite: copy them away, then `git checkout tinyllm/{path.name}`"
        )


def skeletons() -> Iterator[Derived]:
    for path in references():
        lab = next((lab for lab in NOTEBOOKS if lab.module == path.stem), None)
        text = skeleton(path.read_text("utf-8"), lab)
        yield Derived(ROOT / "tinyllm" / path.name, text.encode())


def everything() -> Iterator[Derived]:
    yield from skeletons()
    for lab in NOTEBOOKS:
        path = notebook_path(lab)
        yield Derived(path, serialised(filled(lab, read_notebook(path))))
        if lab.exercises:
            yield Derived(RECORDED / f"{lab.module}.safetensors", recorded(lab))
    sources = {path.stem: path.read_text("utf-8") for path in references()}
    record = pack(assembly.recorded(sources))
    yield Derived(RECORDED / f"{assembly.RECORD}.safetensors", record)
    yield Derived(STUBS, stub_prints())  # the last one: it speaks of the skeletons above


def notebook_path(lab: Lab) -> Path:
    return ROOT / "notebooks" / f"{lab.name}.ipynb"


def skeleton(source: str, lab: Lab | None) -> str:
    """The module as a learner first opens it: every exercise a stub that names itself."""
    if lab is None:
        return source
    texts = []
    for key, text in cells.split(source):
        texts.append(cells.stub(text, lab.exercise(key)) if key else text)
    return "".join(texts)


# Notebooks


def read_notebook(path: Path) -> NotebookNode:
    if not path.exists():
        raise BuildError(f"{path} is missing: a lab's prose is authored there")
    return nbformat.read(path, as_version=4)


def serialised(notebook: NotebookNode) -> bytes:
    return (nbformat.writes(notebook, version=4).rstrip("\n") + "\n").encode()


def filled(lab: Lab, notebook: NotebookNode, solved: bool = False) -> NotebookNode:
    """The notebook with every cell that the build owns; `solved` leaves the reference in."""
    by_id = {cell.id: cell for cell in notebook.cells}
    if lab.exercises:
        owned(by_id, "setup").source = setup_cell(lab)
    if lab in LABS:
        place_map(lab, notebook, by_id)
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    for exercise in lab.exercises:
        block = reference_block(lab, exercise)
        about = owned(by_id, f"about-{exercise.slug}")
        about.source = with_badge(about.source, exercise, block)
        answer = owned(by_id, exercise.answer_cell)
        answer.source = block if solved else cells.stub(block, exercise)
        test = owned(by_id, exercise.check_cell)
        test.source = f'check("{exercise.id}")'
        mark(answer, exercise.answer_cell, solution=True)
        mark(test, exercise.check_cell, grade=True, locked=True, points=exercise.points)
    for question in lab.questions:
        answer = owned(by_id, question.answer_cell)
        answer.source = model_answer(lab, question) if solved else "YOUR ANSWER HERE"
        points = {"grade": True, "points": question.points}
        mark(answer, question.answer_cell, solution=True, **points)
    return notebook


def owned(by_id: dict[str, NotebookNode], name: str) -> NotebookNode:
    if name not in by_id:
        raise BuildError(f"the notebook has no cell with the id {name!r}")
    return by_id[name]


def mark(cell: NotebookNode, grade_id: str, **fields: object) -> None:
    """nbgrader's metadata, schema 3: exactly the keys that it allows."""
    base = {"schema_version": 3, "grade_id": grade_id, "grade": False, "solution": False}
    base |= {"locked": False, "task": False, "cell_type": cell.cell_type}
    cell.metadata["nbgrader"] = nbformat.from_dict({**base, **fields})


def setup_cell(lab: Lab) -> str:
    """The module's own imports, so that a cell sees the same names here and there."""
    own = ["from labkit.learner.notebook import check, hint, solution, start"]
    return "\n".join([*imports(reference(lab)), "", *own, "", f'start("{lab.module}")'])


def place_map(lab: Lab, notebook: NotebookNode, by_id: dict[str, NotebookNode]) -> None:
    """Below the first cell, the figure of the whole model with this lab's part lit."""
    if "map" not in by_id:
        below = notebook.cells.index(by_id["setup"]) + 1
        notebook.cells.insert(below, new_code_cell(id="map"))
        by_id["map"] = notebook.cells[below]
    by_id["map"].source = MAP.format(lab.module)


def imports(source: str) -> list[str]:
    lines = []
    last = None
    for node in ast.parse(source).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            node = ast.ImportFrom(f"tinyllm.{node.module}", node.names, 0)
        elif last is not None and node.lineno > last + 1:
            lines.append("")
        last = getattr(node, "end_lineno", last)
        lines.append(ast.unparse(node))
    return lines


def with_badge(text: str, exercise: Exercise, block: str) -> str:
    """The authored text under the exercise's heading and badge, which the syllabus says."""
    lines = cells.solution_lines(block)
    kind = "core" if exercise.core else "stretch: counts, but nothing later needs it"
    worth = f"{exercise.points} points · {kind}" if exercise.points else "practice, no points"
    badge = (
        f"{exercise.minutes} minutes · about {lines} line{'s' if lines > 1 else ''} · {worth}"
    )
    body = BADGE.sub("", text.lstrip())
    heading = f"### Exercise {exercise.id}  {exercise.title}"
    return f"{heading}\n*{badge}*\n\n{body}".rstrip()


def written_answer(lab: Lab, question: Question) -> dict[str, str]:
    """{"rubric": text, "model answer": text} of a written question."""
    path = ROOT / "solutions" / "answers" / f"{lab.module}.md"
    found = hints.sections(path.read_text("utf-8")).get(question.id, {})
    if not {"rubric", "model answer"} <= set(found):
        raise BuildError(f"{path.name} lacks rubric or model answer for question {question.id}")
    return found


def model_answer(lab: Lab, question: Question) -> str:
    found = written_answer(lab, question)
    return f"{found['model answer']}\n\n**Rubric.** {found['rubric']}"


# The learners' edition

EDITION = (
    *("notebooks/*.ipynb", "tinyllm/__init__.py", "solutions/hints/*.md"),
    *("labkit/**/*.py", "labkit/pretrain/*.jinja", "checkpoints/*/*"),
    *("tests/checks.ini", "tests/visible/*.py", "tests/visible/stubs.json"),
    *("tests/visible/recorded/*",),
    *("pyproject.toml", "constraints.txt", "environment.yml", "README.md", "LICENSE"),
)
INSTRUCTORS_ONLY = ("labkit/author", "labkit/grading", "labkit/bench")
PROGRAMS = ("checkpoints/stories-dense",)  # they talk where no decoder is finished


def write_edition(folder: Path) -> Path:
    """The project as a class gets it: no reference, mistakes, hidden checks, grading."""
    from labkit.author.export import write_program

    if folder.exists() and any(folder.iterdir()):
        raise BuildError(f"{folder} is not empty; name a new folder")
    for pattern in EDITION:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT)
            if not name.as_posix().startswith(INSTRUCTORS_ONLY):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, folder / name)
    for derived in skeletons():
        (folder / derived.path.relative_to(ROOT)).write_bytes(derived.content)
    for name in PROGRAMS:
        write_program(ROOT / name, folder / name)
    return folder


# Recorded answers


def recorded(lab: Lab) -> bytes:
    """Run the visible checks on the reference and keep every answer, also the wrong ones."""
    from labkit.learner.check import SEED

    recorder = RecordingReference(live_reference(lab))
    for exercise in lab.exercises:
        student = recorder.live.reference
        result = run_checks("visible", lab.module, exercise, student, recorder, SEED)
        if not result.passed:
            fault = result.broken or result.first_failure
            raise BuildError(
                f"the reference fails the visible checks of {exercise.id}: {fault}"
            )
    return recorder.blob()


def stub_prints() -> bytes:
    """The fingerprint of every stub, by which an exercise that was not begun is known."""
    exercises = [(lab, exercise) for lab in NOTEBOOKS for exercise in lab.exercises]
    prints = {
        e.id: cells.fingerprint(cells.stub(reference_block(lab, e), e)) for lab, e in exercises
    }
    return (json.dumps(prints, indent=1) + "\n").encode()


def same_record(before: bytes, after: bytes) -> bool:
    """Whether two records say the same: processors differ in the last bit of a float."""
    try:
        old, new = unpack(before), unpack(after)
        return old.keys() == new.keys() and all(_same_entry(old[key], new[key]) for key in new)
    except (ValueError, KeyError, TypeError):
        return False


def _same_entry(old: dict, new: dict) -> bool:
    if old["digest"] != new["digest"] or len(old["suspects"]) != len(new["suspects"]):
        return False
    if not agree(outcome_from(old["reference"]), outcome_from(new["reference"])):
        return False
    for mine, theirs in zip(old["suspects"], new["suspects"], strict=True):
        if mine[:3] != theirs[:3]:
            return False
        a, b = (outcome_from(s[3] or e["reference"]) for s, e in ((mine, old), (theirs, new)))
        if not agree(a, b):
            return False
    return True
