"""The classes of nbgrader_config.py: nbgrader's commands call the judge through them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbconvert.exporters import Exporter, NotebookExporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters.base import NbGraderException
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_locked, is_solution, is_task
from sqlalchemy.exc import SQLAlchemyError
from traitlets import default
from traitlets.config import Config

from labkit.author.owned_cells import set_points
from labkit.course import cells
from labkit.course.report import clean
from labkit.course.syllabus import Lab, UnknownName, find_exercise, find_lab
from labkit.grading.class_report.read_results import results_of
from labkit.grading.judge.graded import GradedSubmission
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.nbgrader.submitted import Remark
from labkit.grading.run import judge_process
from labkit.grading.run.follow import apply_course_rules
from labkit.grading.run.judge_process import running_workers
from labkit.grading.run.schedule import grade_lab
from labkit.sandbox.bubblewrap import GradingError
from labkit.sandbox.inside.limits import CPU_SECONDS


class InsertStubs(NbGraderPreprocessor):
    """Takes the answers out: the course's stubs, which name their exercise, and blank texts.
    The points are those of course.toml."""

    def preprocess(self, notebook: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        lab = find_lab(resources["nbgrader"]["assignment"])
        set_points(notebook, course_in(self.config).rules.lab(lab))
        return super().preprocess(notebook, resources)

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, index: int
    ) -> tuple[NotebookNode, dict]:
        exercise_id = cells.exercise_in(cell.source) if cell.cell_type == "code" else None
        if exercise_id:
            cell.source = cells.stub(cell.source, find_exercise(exercise_id)[1])
        elif is_solution(cell):
            cell.source = cells.EMPTY_ANSWER
        return cell, resources


class ReleaseExporter(NotebookExporter):
    """Makes the learners' notebook from source/; refuses if the graded cells differ from the
    course's. The previous release stays until the new one is complete, while nbgrader would
    remove it first."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        converter = self.parent
        for folder, notebooks in converter.assignments.items():
            lab = find_lab(Path(folder).name)
            for path in notebooks:
                notebook = nbformat.read(path, as_version=4)
                if fault := odd_cells(notebook, lab) or self.late_cells(notebook, lab):
                    fault = f"{path}: {fault}; nothing was changed"
                    self.log.error(fault)
                    raise NbGraderException(fault)
        convert = converter.convert_notebooks
        converter.convert_notebooks = lambda: self.keep_release(convert)

    def late_cells(self, notebook: NotebookNode, lab: Lab) -> str:
        """Return the cells that were added or removed after learners handed in, which nbgrader
        does not accept; "" if there are none."""
        names = {
            cell.metadata.nbgrader["grade_id"]
            for cell in notebook.cells
            if is_grade(cell) or is_solution(cell) or is_locked(cell) or is_task(cell)
        }
        folder = self.parent.coursedir
        known = (MissingEntry, SQLAlchemyError)  # nbgrader itself reports the second
        with suppress(*known), Gradebook(folder.db_url, folder.course_id) as book:
            before = book.find_notebook(lab.name, lab.name)
            changed = sorted({cell.name for cell in before.source_cells} ^ names)
            if changed and before.submissions:
                return (
                    f"{', '.join(changed)}: learners have handed in this lab, and from then on "
                    "its graded and locked cells stay the same. Undo that; text and code that "
                    "nobody is graded for need no mark of nbgrader"
                )
        return ""

    def keep_release(self, convert: Callable[[], None]) -> None:
        """Convert; if that fails, restore the previous release."""
        folder = Path(self.parent.coursedir.format_path("release", ".", "."))
        names = {Path(each).name for each in self.parent.assignments}
        with TemporaryDirectory(prefix=".release-", dir=self.parent.coursedir.root) as copies:
            before = [path for name in sorted(names) if (path := folder / name).is_dir()]
            for path in before:
                copytree(path, Path(copies, path.name))
            try:
                convert()
            except BaseException:
                for path in before:
                    rmtree(path, ignore_errors=True)
                    copytree(Path(copies, path.name), path)
                self.log.error("%s is as it was before", folder)
                raise


def odd_cells(notebook: NotebookNode, lab: Lab) -> str:
    """Return how the graded cells of an instructor's notebook differ from the lab's; "" if they
    do not."""
    names = [
        marks["grade_id"]
        for cell in notebook.cells
        if (marks := cell.metadata.get("nbgrader", {}))
        and any(marks.get(kind) for kind in ("grade", "solution", "task"))
    ]
    added, missing = sorted({*names} - lab.cells), sorted(lab.cells - {*names})
    if added:
        return (
            f"{', '.join(added)}: a graded cell of your own, which `tinyllm grade` would not "
            "read. GRADING.md, 'Your own lessons and questions', has the way"
        )
    if missing:
        return (
            f"{', '.join(missing)} is not there: leave the cells, and let them count nothing "
            'in course.toml, such as "1.2" = 0 in [points]'
        )
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    return f"{', '.join(twice)} is there twice: delete one of the cells" if twice else ""


class JudgeExporter(NotebookExporter):
    """Lets `nbgrader autograde` and formgrader's button grade as `tinyllm grade` does.

    nbgrader would convert each notebook twice, and ask its database several questions a cell.
    Its command and its list of learners stay; the rest is ours, so that both commands give the
    same result. The price: its hooks before and after a conversion do not run.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.parent.convert_notebooks = self.grade

    def grade(self) -> None:
        with course_of(self) as (course, learners):
            lab = find_lab(self.parent.coursedir.assignment_id)
            for text in running_workers().sandbox.warnings:
                self.log.warning(text)
            graded = grade_lab(course, lab, InThisProcess(), only=learners)
            apply_course_rules(course, lab)
            for entry in results_of(course, lab).entries if graded else ():
                if entry.change and entry.learner in graded:
                    since, text = entry.change.since, entry.change.text
                    text = f"the grade changed since {since}, {text}"
                    course.remarks.append(Remark(text, entry.learner))
            for learner, submission in graded.items():
                if submission.problem:
                    course.remarks.append(Remark(submission.problem, learner))
        if not graded:
            raise NbGraderException("nothing was handed in that can be graded")


class InThisProcess:
    """A pool of this process only, whose judge stays warm for formgrader's button."""

    unsandboxed, cpu_seconds, width, patience = None, CPU_SECONDS, 1, None

    def submit(self, *task: Any) -> Future[GradedSubmission]:
        future: Future[GradedSubmission] = Future()
        try:
            future.set_result(judge_process.grade(*task))
        except Exception as error:
            future.set_exception(error)
        return future

    def stop(self) -> None:
        """Do nothing: the judge starts another process for learner code by itself."""


class FeedbackPage(Exporter):
    """Lets `nbgrader generate_feedback` write the pages of `tinyllm grade`."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.parent.convert_notebooks = self.write

    @default("file_extension")
    def _file_extension_default(self) -> str:
        return ".html"

    def write(self) -> None:
        with course_of(self) as (course, learners):
            course.feedback(find_lab(self.parent.coursedir.assignment_id), learners)
            if course.remarks:
                raise NbGraderException("some pages of feedback could not be made")


@contextmanager
def course_of(exporter: Exporter) -> Iterator[tuple[Course, list[str]]]:
    """Return the course folder of an nbgrader command, with its current rules, and the learners
    that the command is about. Its remarks go to nbgrader's log, and its errors are
    nbgrader's."""
    course = course_in(exporter.config)
    try:
        yield course, [Path(folder).parent.name for folder in exporter.parent.assignments]
    except (CourseError, GradingError, UnknownName) as error:
        exporter.log.error(str(error))
        raise NbGraderException(str(error)) from error
    finally:
        course.gradebook.close()
        for remark in dict.fromkeys(course.remarks):
            exporter.log.warning(clean(str(remark)))


def course_in(config: Config) -> Course:
    return Course(Path(config.CourseDirectory.root), config.CourseDirectory.get("db_url"))
