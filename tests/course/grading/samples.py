"""Samples for the tests of grading: notebooks, archives, verdicts, rows of a gradebook."""

import copy
import csv
import io
import json
import zipfile
from itertools import zip_longest

from nbgrader.utils import parse_utc

from labkit.author.owned_cells import notebook_path
from labkit.course.report import Status
from labkit.course.syllabus import LABS
from labkit.grading.judge.graded import GradedExercise, GradedSubmission
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.graded_notebook import graded_notebook, read_content
from labkit.grading.nbgrader.submitted import GradedFile, SubmittedFile
from labkit.grading.run.results import Results
from labkit.grading.sample_class import encoded

LAB, SECOND, THIRD = LABS[:3]
TEXT = {lab.name: notebook_path(lab).read_bytes() for lab in LABS[:3]}
NO_CELLS = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
NOON = (2026, 3, 1, 12, 0, 0)
FULL = tuple(float(exercise.points) for exercise in LAB.exercises)
DUE, LATE = "2026-03-01 12:00:00 UTC", "2026-03-01 14:30:00 UTC"
# Moodle's grading worksheet, by language
WORKSHEETS = {
    "de": "ID,Vollständiger Name,E-Mail-Adresse,Status,Bewertung,Höchste Bewertung\n"
    'Teilnehmer/in7001,Ann Lee,ann@x.edu,,-,"20,00"\n'
    'Teilnehmer/in7002,Bo Ek,bo@x.edu,,-,"20,00"\n',
    "zh": "标识符,全名,学号,电子邮件地址,状态,成绩,最高分\n"
    "参与者7001,李安,ann,ann@x.edu,已提交,,20.00\n"
    "参与者7002,艾博,bo,bo@x.edu,已提交,,20.00\n",
}

# Files


def notebook(mark="", lab=LAB, **answers):
    """A notebook with answers: ex_1_1=text. `mark` makes it differ from others; lab None: of no
    lab."""
    content = json.loads(TEXT[lab.name] if lab else NO_CELLS)
    content["metadata"]["mark"] = mark
    for cell in content["cells"]:
        cell["source"] = answers.get(cell["id"].replace("-", "_"), cell["source"])
    return json.dumps(content).encode()


def zipped(files, times=None, method=zipfile.ZIP_DEFLATED, **attributes):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (times or {}).get(name, NOON))
            info.compress_type = method
            for key, value in attributes.items():
                setattr(info, key, value)
            archive.writestr(info, data)
    return buffer.getvalue()


def rows_of(path):
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


# Graded learners, made without a judge


def judged(scores=FULL, lab=LAB):
    """A verdict with these points for the first exercises, and none for the others."""
    pairs, rows = zip_longest(lab.exercises, scores, fillvalue=0.0), (("ok", "x"),)
    return GradedSubmission(
        tuple(GradedExercise(e.id, s / e.points, Status.PASSED, rows) for e, s in pairs)
    )


def notebook_of(course, submission, text="because", lab=LAB):
    """The graded notebook, with a written answer."""
    notebook = copy.deepcopy(course.released(lab))
    cell_called(notebook, lab.questions[0].answer_cell).source = text
    return graded_notebook(encoded(notebook), course.released(lab), lab, submission)


def handed(course, learner, stamp=None, lab=LAB):
    path = course.root / "submitted" / learner / lab.name / f"{lab.name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"{}")
    if stamp is not None:
        (path.parent / "timestamp.txt").write_text(stamp)
    return SubmittedFile(learner, lab, path)


def store(course, file, submission, notebook):
    """Store a verdict as grading does, beside the notebook that was graded before."""
    before = read_content(course.autograded(file.lab, file.learner))
    course.store(file.lab, [GradedFile(file, submission, notebook, before)])


def stored(course, learner="ada", stamp=None, scores=FULL, text="because", lab=LAB):
    """The standing of a learner whose verdict went into the gradebook."""
    submission = judged(scores, lab).worth(course.rules.lab(lab))
    notebook = notebook_of(course, submission, text, lab)
    store(course, handed(course, learner, stamp, lab), submission, notebook)
    return course.standings(lab)[learner]


def graded(course, learner, scores=FULL, stamp=None, text="because", lab=LAB):
    """Write the files and rows that `tinyllm grade` writes for a learner: a stored result and
    the gradebook's rows."""
    results = Results(course.root, lab)
    results.put(learner, judged(scores, lab))
    results.put_class({**results.keys(), learner: learner})
    stored(course, learner, stamp, scores, text, lab)


def by_hand(course, part, points, learner="ada", extra=None):
    """Give points as a person does in formgrader."""

    def give(book):
        grade = book.find_grade(part.grade_cell, LAB.name, LAB.name, learner)
        grade.manual_score, grade.extra_credit = points, extra
        grade.needs_manual_grade = points is None and grade.auto_score is None
        book.db.commit()

    course.gradebook.do(give)


def page_of(course, learner):
    return course.root / "feedback" / learner / LAB.name / f"{LAB.name}.html"


def set_due(course):
    due = parse_utc(DUE)
    course.gradebook.do(
        lambda book: bool(book.update_or_create_assignment(LAB.name, duedate=due))
    )


PLUGIN = """
from nbgrader.plugins import BasePlugin


class AnHour(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        if student_id == "broken":
            raise ZeroDivisionError
        return total_seconds_late // 3600
"""
OURS = 'c.AssignLatePenalties.plugin_class = "late_{}.AnHour"\n'


def with_plugin(course, line=OURS):
    """The configuration with a line more; a module name of its own for each test."""
    name = "late_" + "".join(filter(str.isalnum, course.root.parent.name))
    (course.root / f"{name}.py").write_text(PLUGIN)
    config = course.root / "nbgrader_config.py"
    config.write_text(config.read_text() + line.replace("late_{}", name))
    return course
