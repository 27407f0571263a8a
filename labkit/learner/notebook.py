"""What a notebook uses: start, predict, outcome, check, hint, solution, assemble, finish.

`start("rmsnorm")` in the first cell makes every exercise cell that runs without an error
travel into the lab's module of `tinyllm`, and reloads the package.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from labkit.course import cells, paths, sealed
from labkit.course.answers import Answer, Cell, answers_in, defines, is_answer_line
from labkit.course.lang import tr
from labkit.course.report import Report, Status
from labkit.course.sealed import NotReady
from labkit.course.syllabus import (
    NOTEBOOKS,
    Exercise,
    Lab,
    Question,
    UnknownName,
    find_exercise,
    find_lab,
    find_question,
)
from labkit.learner import hints, workspace
from labkit.learner.assemble import assembly_report
from labkit.learner.check import check_exercise
from labkit.learner.progress.finish import finish_report
from labkit.learner.progress.predictions import outcome, predict
from labkit.learner.progress.written import ModelAnswer, model_answer
from labkit.learner.room import ENDLESS, Room, Stopped

try:
    from IPython import get_ipython
except ImportError:  # outside notebooks

    def get_ipython() -> None:
        return None


__all__ = ["assemble", "check", "finish", "hint", "outcome", "predict", "solution", "start"]

UNFINISHED = (NotReady, NotImplementedError, NameError)


class Session:
    """One notebook at work, and its lab."""

    def __init__(self, lab: Lab):
        self.lab = lab
        self.unsaved: set[str] = set()  # exercises whose last run raised an error
        self.left_out = False  # whether a cell lacked something that is not written yet
        self.ran: list[Cell] = []  # the notebook's cells as they were run, the last one last

    def after_cell(self, result: Any) -> None:
        """IPython's post_run_cell event: save what the cell answers, or adds to an answer."""
        source, name = result.info.raw_cell or "", getattr(result.info, "cell_id", None) or ""
        parts = answers_in(source, name, self.lab)
        given = workspace.mark_of(source) in workspace.given_cells()[self.lab.name]
        cell = Cell(source, parts=parts, given=given, name=name)
        if result.error_before_exec:
            self._keep_apart(cell.parts, tr("the cell raised an error"))
            return
        stopped = line_of(result.error_in_exec, source)
        torn = [
            key
            for key, text in cell.parts.items()
            if stopped and is_answer_line(text, self.lab.exercise(key), stopped)
        ]
        self._keep_apart(torn, tr("the cell raised an error"))
        cell.parts = {key: text for key, text in cell.parts.items() if key not in torn}
        self._remember(cell)
        self._warn_of_loss(source)
        for exercise in self.lab.exercises:
            if exercise.id in torn:
                continue
            if exercise.id in cell.parts or defines(source, exercise):
                self._answer(exercise, cell, bool(stopped))
            else:
                self._refresh(exercise)

    def _keep_apart(self, exercises: Iterable[str], why: str) -> None:
        for exercise_id in exercises:
            print(
                tr(
                    "exercise {exercise_id} was not saved: {why}",
                    exercise_id=exercise_id,
                    why=why,
                )
            )
            self.unsaved.add(exercise_id)

    def _remember(self, cell: Cell) -> None:
        """A cell that was run again, or that answers what another one did, replaces it."""
        for other in self.ran:
            other.parts |= dict.fromkeys(cell.parts.keys() & other.parts.keys(), "")
        kept = [
            each for each in self.ran
            if each.text != cell.text
            and not (each.name and each.name == cell.name)
            and (any(each.parts.values()) or not each.parts)
        ]  # fmt: skip
        self.ran = [*kept, cell]

    def _answer(self, exercise: Exercise, cell: Cell, stopped: bool) -> None:
        """Save what the cell just run answers, if it is the one that counts."""
        found = workspace.notebook_of(self.lab, self.ran).answer(exercise)
        if found is None or found.cell is not cell:
            self._say_what_counts(exercise, cell)
            return
        self.unsaved.discard(exercise.id)
        if stopped:
            print(tr("the cell raised an error below its definitions, which are kept"))
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

    def _say_what_counts(self, exercise: Exercise, cell: Cell) -> None:
        if exercise.id in cell.parts:  # an empty one; what the module holds stays
            message, _ = workspace.save(self.lab, exercise, cell.parts[exercise.id])
            if message:
                print(message)
                self._share(exercise)
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
        """Save an answer again if what it takes from other cells has changed by this one."""
        block = cells.block(workspace.module_source(self.lab), exercise.id)
        if block is None or workspace.is_empty(exercise, block):
            return
        found = workspace.notebook_of(self.lab, self.ran).answer(exercise)
        texts = (found.text.rstrip(), block) if found else (block, block)
        same = [cells.fingerprint(cells.without_carried(text)) for text in texts]
        if same[0] == same[1] and len({*map(str, map(cells.carried_parts, texts))}) > 1:
            print(tr("exercise {id} uses this cell: ", id=exercise.id), end="")
            self._save(exercise, found)

    def _save(self, exercise: Exercise, found: Answer) -> None:
        try:
            message, stored = workspace.save(self.lab, exercise, found.text, found.carried)
        except OSError as error:  # a full disk, a folder that was taken away
            self._keep_apart([exercise.id], f"{error.filename}: {error.strerror}")
            return
        if message:
            print(message)
        if stored:
            self._share(exercise)

    def _warn_of_loss(self, source: str) -> None:
        """An answer to an exercise that this lab has not."""
        exercise_id = cells.exercise_in(source)
        if exercise_id and exercise_id not in [each.id for each in self.lab.exercises]:
            print(
                tr(
                    "lab {name} has no exercise {exercise_id}: the cell was not saved",
                    name=self.lab.name,
                    exercise_id=exercise_id,
                )
            )

    def _share(self, exercise: Exercise) -> bool:
        """Let the notebook use the package's own objects, the ones that will be checked; False
        where the module does not load, which is printed."""
        try:
            module = self._load()
        except Stopped as stopped:
            where = tr(
                "tinyllm/{name}, line {line}", name=Path(stopped.path).name, line=stopped.line
            )
            print(
                tr(
                    "but loading it was {stopped} ({where}): {advice}",
                    stopped=stopped,
                    where=where,
                    advice=tr(ENDLESS),
                )
            )
            return False
        except Exception as error:  # whatever the learner's module raises
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
        names = get_ipython().user_ns
        for name in exercise.symbols:
            names.pop(name, None)
            if hasattr(module, name):
                names[name] = getattr(module, name)
        return True

    def cell_raised(self, shell: Any, kind: type, error: Exception, trace: Any, **how) -> None:
        """IPython's handler of UNFINISHED: a sentence where a traceback would tell no more."""
        frames = [frame for frame, _ in walk_tb(trace)]
        if isinstance(error, NotReady):
            print(tr("left out: {error}", error=error))
        elif isinstance(error, NotImplementedError) and str(error).startswith("Exercise"):
            print(tr("left out: {error} is not written yet", error=error))
        elif self.left_out and kind is NameError and frames[-1].f_globals is shell.user_ns:
            print(
                tr(
                    "left out: {error}; the cell that makes it was left out or not run",
                    error=error,
                )
            )
        else:
            shell.showtraceback((kind, error, trace), **how)
            return
        self.left_out = True

    def _load(self) -> ModuleType:
        """The lab's module; what it prints was shown when its cells ran."""
        with Room(workspace.folder(), quiet=True).entered():
            return workspace.load(self.lab)

    def share_saved_answers(self) -> None:
        """Let the notebook use what the module holds already, whether or not its cells run."""
        empty = workspace.unfinished(self.lab)
        saved = [exercise for exercise in self.lab.exercises if exercise not in empty]
        if not saved:
            return
        titles = tr(", ").join(f"{e.id} {e.title}" for e in saved)
        print(tr("Answers saved before, in use here: {titles}", titles=titles))
        for exercise in saved:
            if not self._share(exercise):
                return

    def share_earlier_labs(self) -> None:
        """Say whose the earlier labs are that this one uses, and let the course's own stand in
        for what is empty in the notebook too."""
        empty = workspace.still_empty(self.lab)
        if not empty:
            return
        labs = workspace.whose(workspace.earlier(self.lab))
        print(tr("From earlier labs: {lab}.", lab=labs))
        try:
            module = self._load()
        except (Exception, Stopped):  # whatever the learner's module raises; its check says so
            return
        names = get_ipython().user_ns
        for name in workspace.borrowed(self.lab):
            if name in names:
                names[name] = getattr(module, name)


def line_of(error: BaseException | None, source: str) -> int:
    """The line of a cell at which an error came up; 0 without one."""
    trace = error.__traceback__ if error else None
    names = get_ipython().user_ns
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<module>" and trace.tb_frame.f_globals is names:
            return trace.tb_lineno + source.lstrip().startswith("%%")
        trace = trace.tb_next
    return 1 if error else 0


_session: Session | None = None


def start(lab: str) -> None:
    """Begin a lab: from here on, running an exercise cell saves it into the package.

    lab    the lab's name: "rmsnorm", "01" or "01_rmsnorm"
    """
    global _session
    shell = get_ipython()
    if shell is None:
        raise RuntimeError(
            tr("start() belongs in a notebook; in a terminal use `tinyllm check`")
        )
    if not paths.NOTEBOOKS.is_dir():
        raise RuntimeError(tr(paths.NOT_IN_ITS_FOLDER))
    try:
        found = find_lab(lab, NOTEBOOKS)
    except UnknownName as error:
        print(error)
        return
    workspace.require_writable()
    if _session is not None:
        shell.events.unregister("post_run_cell", _session.after_cell)
    _session = Session(found)
    shell.events.register("post_run_cell", _session.after_cell)
    shell.set_custom_exc(UNFINISHED, _session.cell_raised)
    chosen = _session.lab
    exercises = tr(", ").join(f"{e.id} {e.title}" for e in chosen.exercises)
    print(
        tr(
            "Lab {number}, {title}\nExercises: {exercises}",
            number=chosen.number,
            title=tr(chosen.title),
            exercises=exercises,
        )
    )
    print(
        tr(
            "Running an exercise cell saves it to {chosen}",
            chosen=workspace.module_path(chosen),
        )
    )
    _session.share_earlier_labs()
    _session.share_saved_answers()


def check(exercise_id: str) -> Report | float:
    """Check an exercise now; the report says what is right, what is wrong first, and why."""
    try:
        lab, exercise = find_exercise(str(exercise_id))
    except UnknownName as error:
        return unknown("check", tr("no such exercise"), error)
    ladder = tr(
        'hint("{id}") shows rung {exercise} of {count}',
        id=exercise.id,
        exercise=hints.climbed(exercise) + 1,
        count=len(hints.RUNGS),
    )
    if hints.climbed(exercise) >= len(hints.RUNGS):
        ladder = tr(
            'hint("{id}", 1) begins anew; {exercise}',
            id=exercise.id,
            exercise=answer_step(lab, exercise),
        )
    report, score = check_exercise(lab, exercise, ladder)
    if _session is None and not report.passed:
        report.rows.append(("note", tr("the first cell of the notebook has not been run yet")))
    if _session is not None and exercise.id in _session.unsaved:
        note = tr(
            "the last run of your cell was not saved; this is about the version before it"
        )
        report.rows.insert(0, ("note", note))
    if os.environ.get("NBGRADER_EXECUTION"):  # nbgrader reads a plain number as the points
        print(report)
        return float(score)
    return report


def assemble() -> Report:
    """Run a whole model on your own parts; the report names the first part that deviates."""
    return assembly_report('check("{}")'.format)


def finish(lab: str) -> Report:
    """The end of a lab: its points, how its predictions went, what comes next."""
    try:
        return finish_report(find_lab(lab, NOTEBOOKS))
    except UnknownName as error:
        return unknown("finish", tr("no such lab"), error)


def hint(exercise_id: str, rung: int | None = None) -> Report:
    """Climb one rung of the exercise's ladder; `rung` goes to a rung directly."""
    try:
        lab, exercise = find_exercise(str(exercise_id))
    except UnknownName as error:
        return unknown("hint", tr("no such exercise"), error)
    last = len(hints.RUNGS)
    if rung is not None and rung not in range(1, last + 1):
        look = tr("there is no rung {rung}: the rungs are 1 to {last}", rung=rung, last=last)
        return unknown(tr("Hint {id}", id=exercise.id), tr("no such rung"), look)
    rung = hints.climb(exercise, rung)
    again = tr(
        'hint("{id}") shows rung {rung} of {last}', id=exercise.id, rung=rung + 1, last=last
    )
    return hints.hint_report(lab, exercise, rung, again, answer_step(lab, exercise))


def solution(exercise_id: str, key: str | None = None) -> ModelAnswer | None:
    """Print the course's own code: the last step of the ladder. Of a written question, "1.a",
    show a model answer, once yours is written.

    key    opens the answers of the lab, where they are locked
    """
    try:
        lab, exercise = find_question(str(exercise_id)) or find_exercise(str(exercise_id))
        if key is not None:
            sealed.unlock(lab.module, key)
        if isinstance(exercise, Question):
            return model_answer(lab, exercise, with_key(exercise))
        print(hints.solution_text(lab, exercise, with_key(exercise)))
    except (LookupError, sealed.WrongKey, OSError) as error:
        print(error)
    return None


def answer_step(lab: Lab, exercise: Exercise) -> str:
    return hints.last_step(lab, f'solution("{exercise.id}")', with_key(exercise))


def with_key(exercise: Exercise | Question) -> str:
    return f'solution("{exercise.id}", "KEY")'


def unknown(heading: str, verdict: str, what: object) -> Report:
    return Report(heading, Status.NOT_CHECKED, [("look", str(what))], verdict)
