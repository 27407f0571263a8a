"""An open notebook: each exercise cell that runs is saved into the lab's module of `tinyllm`.

IPython's events instead of a cell magic: a cell stays plain Python, which any editor and any
grader can read. The price is that only the text tells which exercise a cell answers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from labkit.course import cells
from labkit.course.answers import Answer, Cell, answers_in, defines
from labkit.course.lang import tr
from labkit.course.sealed import NotReady
from labkit.course.statements import statements
from labkit.course.syllabus import Exercise, Lab
from labkit.learner import workspace
from labkit.learner.home_sandbox import ENDLESS, HomeSandbox, LongCalls, OutOfTime, at_ticks
from labkit.model.chat.stream import ChatError
from labkit.model.values import CheckpointError

IMPORTED = re.compile(r"^from tinyllm\.(\w+) import", re.MULTILINE)
# a lab's part, memory, or a usable model is missing
MISSING = (NotReady, CheckpointError, ChatError)
UNFINISHED = (*MISSING, NotImplementedError, NameError, OutOfTime)


def describe_stop(stopped: OutOfTime) -> str:
    """Describe where the learner's code was stopped, and what to do."""
    where = tr("tinyllm/{name}, line {line}", name=Path(stopped.path).name, line=stopped.line)
    texts = {"stopped": stopped, "where": where, "advice": tr(ENDLESS)}
    return tr("{stopped} ({where}): {advice}", **texts)


class Session:
    def __init__(self, lab: Lab, shell: Any):
        self.lab, self.shell = lab, shell
        self.unsaved: dict[str, str] = {}  # {exercise whose last run was not saved: why}
        self.skipped = False  # whether any cell needed an exercise that is not written yet
        self.left_out = False  # whether the last cell did
        self.history: list[Cell] = []  # in the order in which they ran
        self.long_calls = ExitStack()  # open while a cell of the course runs

    def before_cell(self, info: Any) -> None:
        """IPython's pre_run_cell event: limit calls of the learner's code in a given cell."""
        self.long_calls.close()
        self._stand_in(info.raw_cell or "")
        if self._is_given(info.raw_cell or ""):
            self.long_calls.enter_context(at_ticks(workspace.folder(), LongCalls().look))

    def _stand_in(self, source: str) -> None:
        """Import the modules of `tinyllm` that a cell imports, with the reference in unfinished
        exercises of earlier labs."""
        names = {f"tinyllm.{name}" for name in IMPORTED.findall(source)} - sys.modules.keys()
        if not names:
            return
        try:
            self._load(sorted(names))
        # an error in the learner's code, which the cell itself will show
        except (Exception, OutOfTime):
            return

    def _is_given(self, source: str) -> bool:
        return cells.cell_hash(source) in cells.given_cells()[self.lab.name]

    def after_cell(self, result: Any) -> None:
        """IPython's post_run_cell event: save the answers that the cell gives or changes."""
        self.long_calls.close()
        source, name = result.info.raw_cell or "", getattr(result.info, "cell_id", None) or ""
        if self.left_out:
            self._forget_values(source)
        parts = answers_in(source, name, self.lab)
        cell = Cell(source, parts=parts, given=self._is_given(source), name=name)
        if result.error_before_exec:
            for exercise_id in parts:
                why = cells.why_no_python(source) or tr("the cell raised an error")
                self._report_unsaved(exercise_id, why)
            return
        self._remember(cell)
        self._warn_of_loss(source)
        for exercise in self.lab.exercises:
            if exercise.id in parts or defines(source, exercise):
                self._answer(exercise, cell)
            else:
                self._refresh(exercise)

    def _forget_values(self, source: str) -> None:
        """Delete the values that a skipped cell assigns, so that no cell uses old ones."""
        self.left_out = False
        for statement in filter(lambda each: each.is_value, statements(source)):
            for name in statement.binds:
                self.shell.user_ns.pop(name, None)

    @property
    def answered(self) -> list[Exercise]:
        """The exercises that an executed cell answers"""

        def answers(cell: Cell, exercise: Exercise) -> bool:
            part = cell.parts.get(exercise.id, cell.text)
            return defines(part, exercise) and not workspace.is_empty(exercise, part)

        return [e for e in self.lab.exercises if any(answers(c, e) for c in self.history)]

    def _report_unsaved(self, exercise_id: str, why: str) -> None:
        print(
            tr("exercise {exercise_id} was not saved: {why}", exercise_id=exercise_id, why=why)
        )
        self.unsaved[exercise_id] = why

    def _remember(self, cell: Cell) -> None:
        """Add a cell to the history; it replaces earlier runs and equal answers."""
        for other in self.history:
            other.parts |= dict.fromkeys(cell.parts.keys() & other.parts.keys(), "")
        others = [
            other for other in self.history
            if other.text != cell.text
            and not (other.name and other.name == cell.name)
            and (any(other.parts.values()) or not other.parts)
        ]  # fmt: skip
        self.history = [*others, cell]

    def _answer(self, exercise: Exercise, cell: Cell) -> None:
        """Save the answer of the cell that has just run, if it is the one that counts."""
        found = workspace.notebook_of(self.lab, self.history).answer(exercise)
        if found is None or found.cell is not cell:
            self._explain_which_counts(exercise, cell)
            return
        self.unsaved.pop(exercise.id, None)
        if found.inferred:
            line = cells.directive(exercise)
            print(
                tr(
                    'no cell with the line "{line}" answers {id}; this one does:',
                    line=line,
                    id=exercise.id,
                )
            )
        self._save(exercise, found)

    def _explain_which_counts(self, exercise: Exercise, cell: Cell) -> None:
        if exercise.id in cell.parts:  # the cell is empty: the module keeps its code
            message, _ = workspace.save(self.lab, exercise, cell.parts[exercise.id])
            if message:
                print(message)
                self._export(exercise)
        elif not cell.parts and cells.RAISE not in cell.text:
            line = cells.directive(exercise)
            print(
                tr(
                    'not saved: the answer to {id} is the cell with the line "{line}"',
                    id=exercise.id,
                    line=line,
                )
            )

    def _refresh(self, exercise: Exercise) -> None:
        """Save an answer again if this cell changed something that the answer uses."""
        block = cells.block(workspace.module_source(self.lab), exercise.id)
        if block is None or workspace.is_empty(exercise, block):
            return
        found = workspace.notebook_of(self.lab, self.history).answer(exercise)
        texts = (found.text.rstrip(), block) if found else (block, block)
        same = [cells.fingerprint(cells.without_carried(text)) for text in texts]
        if same[0] == same[1] and len({*map(cells.carried_part, texts)}) > 1:
            print(tr("exercise {id} uses this cell: ", id=exercise.id), end="")
            self._save(exercise, found)

    def _save(self, exercise: Exercise, found: Answer) -> None:
        try:
            message, stored = workspace.save(self.lab, exercise, found.text, found.carried)
        except OSError as error:  # a full disk, or a deleted folder
            self._report_unsaved(exercise.id, f"{error.filename}: {error.strerror}")
            return
        if message:
            print(message)
        if stored:
            self._export(exercise)

    def _warn_of_loss(self, source: str) -> None:
        """Warn of an answer to an exercise of a different lab."""
        exercise_id = cells.exercise_in(source)
        if exercise_id and exercise_id not in [e.id for e in self.lab.exercises]:
            print(
                tr(
                    "lab {name} has no exercise {exercise_id}: the cell was not saved",
                    name=self.lab.name,
                    exercise_id=exercise_id,
                )
            )

    def _export(self, exercise: Exercise) -> bool:
        """Put the module's objects, which will be checked, into the notebook.

        If the module does not load, print the reason and return False.
        """
        try:
            module = self._load()
        except OutOfTime as stopped:
            print(tr("but loading it was {stopped}", stopped=describe_stop(stopped)))
            return False
        except Exception as error:  # the learner's module may raise anything
            print(
                tr(
                    "but tinyllm/{module}.py fails: {name}: {error}",
                    module=self.lab.module,
                    name=type(error).__name__,
                    error=error,
                )
            )
            if type(error) is NameError:
                print(tr("Put what the cell needs (imports, helpers) into the cell itself."))
            return False
        names = self.shell.user_ns
        for name in exercise.symbols:
            names.pop(name, None)
            if hasattr(module, name):
                names[name] = getattr(module, name)
        return True

    def cell_raised(self, shell: Any, kind: type, error: Exception, trace: Any, **how) -> None:
        """IPython's handler of UNFINISHED: print one sentence instead of a traceback."""
        frames = [frame for frame, _ in walk_tb(trace)]
        if isinstance(error, MISSING):
            print(tr("left out: {error}", error=error))
        elif isinstance(error, NotImplementedError) and str(error).startswith("Exercise"):
            print(
                tr(
                    "left out: {error} is not written yet",
                    error=workspace.exercise_named(error),
                )
            )
        elif isinstance(error, OutOfTime):
            print(tr("left out: the cell was {stopped}", stopped=describe_stop(error)))
        elif self.skipped and kind is NameError and frames[-1].f_globals is shell.user_ns:
            print(
                tr(
                    "left out: name '{name}' is not defined; the cell that makes it was "
                    "left out or not run",
                    name=error.name,
                )
            )
        else:
            shell.showtraceback((kind, error, trace), **how)
            return
        self.skipped = self.left_out = True

    def _load(self, others: Sequence[str] = ()) -> ModuleType:
        """Load the lab's module without its output, which was shown when its cells ran."""
        with HomeSandbox(workspace.folder(), quiet=True).entered():
            return workspace.load(self.lab, others)

    def export_saved_answers(self) -> None:
        """Put the answers of the module into the notebook, even if their cells do not run."""
        empty = workspace.unfinished(self.lab)
        saved = [exercise for exercise in self.lab.exercises if exercise not in empty]
        if not saved:
            return
        titles = tr(", ").join(f"{e.id} {e.title}" for e in saved)
        print(tr("Answers saved before, in use here: {titles}", titles=titles))
        for exercise in saved:
            if not self._export(exercise):
                return

    def export_earlier_labs(self) -> None:
        """Print who wrote the earlier labs that this one uses, and put the reference into the
        notebook in place of their unfinished exercises."""
        labs = workspace.labs_used(self.lab)
        if not any(exercise.core for lab in labs for exercise in workspace.unfinished(lab)):
            return
        print(tr("From earlier labs: {lab}.", lab=workspace.describe_authors(labs)))
        try:
            module = self._load()
        # an error in the learner's module, which its check will show
        except (Exception, OutOfTime):
            return
        names = self.shell.user_ns
        for name in names.keys() & vars(module).keys():
            if not name.startswith("_"):
                names[name] = getattr(module, name)
