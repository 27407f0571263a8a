"""Where nbgrader meets the judge: the classes that nbgrader_config.py names."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
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
from labkit.grading.class_report.class_results import Entry
from labkit.grading.judge.intake import earlier_labs
from labkit.grading.judge.judge import Judge
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.exchange_files import copy_exchange_files, copy_notebooks_only
from labkit.grading.nbgrader.feedback import page_of
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.nbgrader.graded_notebook import graded_notebook
from labkit.grading.nbgrader.published import Published
from labkit.grading.run.follow import apply_course_rules
from labkit.grading.run.judge_process import judge_for
from labkit.grading.run.results import GradingSpec, Results
from labkit.grading.run.schedule import as_json
from labkit.sandbox.bubblewrap import GradingError


class InsertStubs(NbGraderPreprocessor):
    """Takes the answers out: the course's stubs, which name their exercise, and blank texts.
    The points are those of course.toml."""

    def preprocess(self, notebook: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        lab = find_lab(resources["nbgrader"]["assignment"])
        set_points(notebook, course_of(self.config).rules.lab(lab))
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
    """Makes the learners' notebook from source/, unless the lab's graded cells are not those
    of the course. What was released before stays until the new one is whole: nbgrader removes
    it first."""

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
        """Which cells came or went after learners handed in, when nbgrader takes none; "" if
        none did."""
        names = {
            cell.metadata.nbgrader["grade_id"]
            for cell in notebook.cells
            if is_grade(cell) or is_solution(cell) or is_locked(cell) or is_task(cell)
        }
        folder = self.parent.coursedir
        known = (MissingEntry, SQLAlchemyError)  # of the second, nbgrader tells the rest
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
        """Convert; if that fails, put back what was released before."""
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
    """Why the graded cells of an instructor's notebook are not those of the lab; "" if they
    are."""
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
    """Reads a submission, whatever it is, as the released notebook with verdicts in it.

    nbgrader converts twice: from submitted/ to autograded/, where this class does its work,
    and once more within autograded/, where it reads back what it wrote. If grading is
    impossible, it says so before nbgrader writes anything.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        copy_notebooks_only(self.parent)
        folder = self.parent.coursedir
        try:
            judge_of(Path(folder.root), folder.assignment_id)
        except (CourseError, GradingError, UnknownName) as error:
            self.log.error(str(error))
            raise NbGraderException(str(error)) from error
        self.leave_out_refused()

    def leave_out_refused(self) -> None:
        """Take from nbgrader's list the folders that `tinyllm grade` does not grade either."""
        course, converter = course_of(self.config), self.parent
        lab = find_lab(converter.coursedir.assignment_id)
        for folder in list(converter.assignments):
            handed = course.submitted_file(lab, Path(folder).parent.name)
            if handed.problem:
                self.log.warning(clean(str(handed.remark)))
                del converter.assignments[folder]
        if not converter.assignments:
            raise NbGraderException("nothing was handed in that can be graded")

    def from_filename(
        self, filename: str, resources: dict | None = None, **options: Any
    ) -> tuple[str, dict]:
        course, names = course_of(self.config), resources["nbgrader"]
        lab, learner = find_lab(names["assignment"]), names["student"]
        handed = course.submitted_file(lab, learner)
        if not Path(filename).is_relative_to(course.root / "submitted"):
            saved = super().from_filename(filename, resources, **options)
            apply_course_rules(course, lab)  # nbgrader asks no person about an exercise
            self.report_change(course, lab, learner)
            return saved
        judge, spec = judge_of(course.root, lab.name)
        before = course.answers(earlier_labs(lab), learner)
        data = handed.read()
        copy_exchange_files(handed.path.parent, course.autograded(lab, learner).parent)
        submission = replace(judge.grade(data, before), made_by=spec.made_by)
        if submission.problem:
            self.log.warning("%s: %s", filename, submission.problem)
        results, key = Results(course.root, lab), spec.key(data, as_json(before))
        results.put(key, submission)
        results.put_learner(learner, key)
        apply_course_rules(course, lab)
        worth = submission.worth(course.rules.lab(lab))
        notebook = graded_notebook(data, course.released(lab), lab, worth)
        return self.from_notebook_node(notebook, resources, **options)

    def report_change(self, course: Course, lab: Lab, learner: str) -> None:
        """Say so if the grade is not the one that was given out."""
        results = Results(course.root, lab)
        key = results.keys().get(learner) or ""
        if submission := results.get(key):
            standing = course.standings(lab, [learner])[learner]
            grade = Entry(learner, standing, submission=submission, key=key).grade
            change = Published(course.root, lab.name).change(learner, grade)
            if change:
                text = clean(
                    f"{learner}: the grade changed since {change.since}, {change.text}"
                )
                self.log.warning(text)


class FeedbackPage(Exporter):
    """A graded notebook as the page that its learner gets."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        copy_notebooks_only(self.parent)

    @default("file_extension")
    def _file_extension_default(self) -> str:
        return ".html"

    def from_notebook_node(
        self, nb: NotebookNode, resources: dict | None = None, **options: Any
    ) -> tuple[str, dict]:
        notebook, resources = super().from_notebook_node(nb, resources, **options)
        course, names = course_of(self.config), resources["nbgrader"]
        rules, learner = course.rules.of(find_lab(names["assignment"])), names["student"]
        page = course.root / "feedback" / learner / rules.lab.name
        copy_exchange_files(course.autograded(rules.lab, learner).parent, page)
        people = {person.id: person for person in course.people()}
        standing = course.standings(rules.lab)[learner]
        course.gradebook.close()
        return page_of(notebook, rules, people[learner], standing), resources


def course_of(config: Config) -> Course:
    """The course folder of an nbgrader command, with its rules of now."""
    return Course(Path(config.CourseDirectory.root), config.CourseDirectory.get("db_url"))


@cache
def judge_of(root: Path, lab_name: str) -> tuple[Judge, GradingSpec]:
    """One judge a lab for the life of nbgrader's process."""
    lab, course = find_lab(lab_name), Course(root)
    spec = GradingSpec.of(lab, course.released(lab), course.secret())
    judge = judge_for(spec)
    for text in judge.workers.sandbox.warnings:
        logging.getLogger("traitlets").warning(text)
    return judge, spec
