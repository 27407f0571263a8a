"""The page that a learner gets back: HTML without scripts, which fetches nothing.

nbgrader's own template shows a whole notebook, and no reasons; ours shows exercises, points and
reasons. Learners' code is shown as text, and of their Markdown only harmless tags are kept.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

import bleach
from markupsafe import Markup, escape
from nbconvert.filters import markdown2html
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbformat.v4 import reads_json
from nbgrader.utils import is_grade, is_solution
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from labkit.author.owned_cells import written_answer
from labkit.course.cells import EMPTY_ANSWER
from labkit.course.files import of_the_disk, write_whole
from labkit.course.lang import ENGLISH, speaking, tr
from labkit.course.report import clean
from labkit.course.syllabus import LABS, Exercise, Question
from labkit.grading.course_rules import LabRules
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.exchange_files import copy_exchange_files
from labkit.grading.nbgrader.gradebook.connection import RosterEntry
from labkit.grading.nbgrader.gradebook.rows import NO_RESPONSE
from labkit.grading.nbgrader.standings import Standing
from labkit.grading.pages import mark_of, template

TAGS = {"a", "b", "blockquote", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "hr", "i",
        "img", "li", "ol", "p", "pre", "span", "strong", "sub", "sup", "table", "tbody", "td",
        "th", "thead", "tr", "ul"}  # fmt: skip
PROTOCOLS = {"http", "https", "mailto", "picture"}
PICTURES = {f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")}
NAMES = {"student", "first_name", "last_name", "notebook_path"}  # parts of formgrader's page
MAX_MARKDOWN = 10_000  # characters
MOST_SHOWN = 100_000
MARK_BYTES = 1000  # characters at the start of a page, which contain its mark
PICTURE, ALT = re.compile(r"picture:[\w.-]+"), re.compile(r"[^<>]*")
NOT_SHOWN = re.compile(r'<img(?![^>]*src="data:)[^>]*>')
HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
HELP = Markup(
    '<div style="border-left: 4px solid #767676; margin-top: 1em; padding-left: 1em">'
    "<p><b>{}</b>, for you who grade</p>{}</div>"
)
CODE = HtmlFormatter(classprefix="p-")
CODE_CSS = Markup(CODE.get_style_defs(".highlight"))
once = lru_cache(maxsize=256)  # learners of a class share most texts of a page


# The texts of learners


def clean_lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.split("\n"))


def allowed(tag: str, name: str, value: str) -> bool:
    """Whether an attribute stays: no picture may be fetched from the network."""
    if tag == "img":
        pattern = PICTURE if name == "src" else ALT
        return name in ("src", "alt") and bool(pattern.fullmatch(value))
    return (tag, name) in {("a", "href"), ("th", "scope")}


@once
def sanitized_html(html: str) -> Markup:
    """Return HTML reduced to tags for text."""
    return Markup(bleach.clean(clean_lines(html), TAGS, allowed, PROTOCOLS, strip=True))


def rendered(markdown: str, attachments: dict | None = None) -> Markup:
    """Return Markdown as HTML; the plain source if it is too long or cannot be parsed.

    Never fails: one learner's text must not stop the pages of a class. Its time grows with
    the square of its length, half a second for the worst of MAX_MARKDOWN.

    attachments    of the cell; each picture among them is shown once, so that no page grows by
                   repeating a large one
    """
    markdown = markdown[:MOST_SHOWN].replace("](attachment:", "](picture:")
    html = html_of(markdown)
    for name, bundle in (attachments or {}).items():
        for kind in PICTURES & bundle.keys():
            # in clean HTML, a plain " is only around an attribute or in text
            data = f'src="data:{kind};base64,{bundle[kind]}"'
            html = Markup(str(html).replace(f'src="picture:{name}"', data, 1))
    return Markup(NOT_SHOWN.sub("(a picture)", str(html)))


@once
def html_of(markdown: str) -> Markup:
    """Return Markdown as HTML, without its pictures."""
    if len(markdown) <= MAX_MARKDOWN:
        with suppress(Exception):  # nbconvert, mistune and bleach raise any error
            return sanitized_html(markdown2html(markdown))
    return Markup("<pre>{}</pre>").format(clean_lines(markdown))


@once
def highlighted(code: str) -> Markup:
    return Markup(highlight(clean_lines(code), PythonLexer(), CODE))


class SanitizeAnswers(Preprocessor):
    """Prepares a notebook for formgrader, which would show Markdown and names unchanged: first
    the written answers, without scripts, each above its rubric and model answer; then the
    exercises. The lesson is left out, and names become plain text."""

    enabled = True

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        for name in NAMES & resources.keys():
            resources[name] = resources[name] and escape(resources[name])
        nb.cells = cells_to_grade(nb.cells)
        return super().preprocess(nb, resources)

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, index: int
    ) -> tuple[NotebookNode, dict]:
        if cell.cell_type == "markdown" and is_solution(cell):
            answer = rendered(cell.source, cell.get("attachments"))
            html = str(answer) + grading_help(cell.metadata.nbgrader.grade_id)
            html = html.replace("[", "&#91;")  # no further Markdown in it
            html = re.sub(r"\n[ \t]*(?=\n)", "\n&#10;", html.strip())
            cell.source = f"<div>{html}</div>"
        return cell, resources


def cells_to_grade(cells: list[NotebookNode]) -> list[NotebookNode]:
    """Written answers, each below its question; then exercises, each above its check."""
    written, exercises = [], []
    for before, cell in zip([None, *cells], cells, strict=False):
        if is_solution(cell) and cell.cell_type == "markdown":
            written += [before, cell] if before else [cell]
        elif is_solution(cell) or is_grade(cell):
            exercises.append(cell)
    return written + exercises


@cache
def grading_help(grade_id: str) -> str:
    """Rubric and model answer of a written question, as HTML."""
    asked = [(lab, q) for lab in LABS for q in lab.questions if q.answer_cell == grade_id]
    parts = [part for question in asked for part in written_answer(*question).items()]
    return "".join(str(HELP.format(name, rendered(text))) for name, text in parts)


# The page


def page_of(
    notebook: NotebookNode,
    rules: LabRules,
    person: RosterEntry,
    standing: Standing,
    mark: str = "",
) -> str:
    """Return the page of a graded notebook, in its language; `mark`: see pages.mark_of."""
    spoken = notebook.get("metadata", {}).get("tinyllm", {}).get("language", ENGLISH)
    lab = rules.lab
    with speaking(spoken):
        exercises = [exercise_part(notebook, part, standing) for part in lab.exercises]
        questions = [question_part(notebook, part, standing, rules) for part in lab.questions]
        return template("feedback.html").render(
            lab=lab, learner=clean(person.id), name=clean(person.name), standing=standing,
            exercises=exercises, questions=questions,
            grace=rules.grace_minutes, late_days=rules.late_days, code_css=CODE_CSS, mark=mark,
        )  # fmt: skip


def exercise_part(notebook: NotebookNode, exercise: Exercise, standing: Standing) -> dict:
    """Return the page's content for an exercise."""
    check = cell_called(notebook, exercise.check_cell)
    outputs = [out.data for out in check.outputs if "text/html" in out.get("data", ())]
    return {
        "exercise": exercise,
        "grade": standing.exercises[exercise.id],
        "report": sanitized_html(outputs[0]["text/html"] if outputs else ""),
        "code": highlighted(cell_called(notebook, exercise.answer_cell).source),
        "comment": comment_on(exercise, standing),
    }


def question_part(
    notebook: NotebookNode, question: Question, standing: Standing, rules: LabRules
) -> dict:
    """The page's content for a written question; with rubric and model answer if shown."""
    cell = cell_called(notebook, question.answer_cell)
    before = notebook.cells[notebook.cells.index(cell) - 1]
    asked = before.source if before.cell_type == "markdown" and not is_grade(before) else ""
    empty = cell.source.strip() in ("", EMPTY_ANSWER)
    answers = written_answer(rules.lab, question) if rules.model_answers else {}
    return {
        "question": question,
        "asked": rendered(HEADING.split(tr(asked.strip()))[-1]),
        "answer": "" if empty else rendered(cell.source, cell.get("attachments")),
        "grade": standing.questions[question.id],
        "model": {tr(name): rendered(tr(text)) for name, text in answers.items()},
        "comment": comment_on(question, standing),
    }


def comment_on(part: Exercise | Question, standing: Standing) -> Markup | str:
    """Return a person's comment; nbgrader's own note on blank answers does not count."""
    comment = standing.comments.get(part.answer_cell, "")
    return "" if comment == NO_RESPONSE else rendered(comment)


# The pages of a class


def write_pages(
    root: Path,
    rules: LabRules,
    people: Iterable[RosterEntry],
    standings: Mapping[str, Standing],
    only: Collection[str],
) -> tuple[list[Path], dict[str, str]]:
    """Write the pages of all graded notebooks in the course folder that are not up to date.
    The pages, and {learner: why there is none}: an error in one page stops no other.

    Raises OSError if the disk cannot take any page.
    """
    pages, faults, lab = [], {}, rules.lab
    known = {person.id: person for person in people}
    for path in sorted((root / "autograded").glob(f"*/{lab.name}/{lab.name}.ipynb")):
        learner = path.parent.parent.name
        if only and learner not in only:
            continue
        page = root / "feedback" / learner / lab.name / f"{lab.name}.html"
        try:
            if learner not in standings:
                raise LookupError("the gradebook has no row for this graded notebook")
            person = known.get(learner, RosterEntry(learner))
            data, standing = path.read_bytes(), standings[learner]
            late = (rules.grace_minutes, rules.late_days)
            mark = mark_of(data, lab, rules.model_answers, late, person, standing)
            if not has_mark(page, mark):
                html = page_of(reads_json(data), rules, person, standing, mark)
                write_whole(page, html)
            copy_exchange_files(path.parent, page.parent)
            pages.append(page)
        except Exception as error:  # errors of this notebook, or of this name
            if of_the_disk(error):
                raise
            shutil.rmtree(page.parent, ignore_errors=True)  # the old page is out of date
            why = f"{type(error).__name__}: {error}"
            faults[learner] = f"no page of feedback could be made: {why}"
    return pages, faults


def has_mark(page: Path, mark: str) -> bool:
    try:
        return mark.encode() in page.read_bytes()[:MARK_BYTES]
    except OSError:
        return False
