"""What a learner gets back: one HTML page, without scripts, that fetches nothing.

`nbgrader generate_feedback` calls this through nbgrader_config.py, and so does `tinyllm grade`.
Whatever a learner has written is shown as text; of their Markdown, harmless tags are kept.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import bleach
from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup, escape
from nbconvert.exporters import Exporter
from nbconvert.filters import markdown2html
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from traitlets import default

from labkit.author.course_rules import read_rules
from labkit.author.owned_cells import written_answer
from labkit.core.cells import EMPTY_ANSWER
from labkit.core.report import clean
from labkit.core.syllabus import LABS, Exercise, Lab, Question, find_lab
from labkit.grading.judge.intake import cell_called
from labkit.grading.nbgrader.exchange_files import copy_exchange_files, copy_notebooks_only
from labkit.grading.nbgrader.gradebook.connection import GradebookConnection
from labkit.grading.nbgrader.gradebook.rows import NO_RESPONSE
from labkit.grading.nbgrader.marks import Marks, marks_of
from labkit.grading.nbgrader.standings import shown, signed
from labkit.lang import ENGLISH, language, speaking, tr

TAGS = {"a", "b", "blockquote", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "hr", "i",
        "li", "ol", "p", "pre", "span", "strong", "sub", "sup", "table", "tbody", "td", "th",
        "thead", "tr", "ul"}  # fmt: skip
ATTRIBUTES = {"a": ["href"], "th": ["scope"]}
PROTOCOLS = {"http", "https", "mailto"}
ATTACHED = re.compile(r"!\[([^\[\]\n]*)\]\(attachment:([^()\n]*)\)")
PICTURES = {f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")}
NAMES = {"student", "first_name", "last_name", "notebook_path"}  # of formgrader's page
NO_WORDS = re.compile(r"[^\w .,-]")
MAX_ALT = 80  # characters
MAX_MARKDOWN = 10_000  # characters
MOST_SHOWN = 100_000
HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
HELP = Markup(
    '<div style="border-left: 4px solid #767676; margin-top: 1em; padding-left: 1em">'
    "<p><b>{}</b>, for you who grade</p>{}</div>"
)
CODE = HtmlFormatter(classprefix="p-")


def clean_lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.split("\n"))


def sanitized_html(html: str) -> Markup:
    """HTML of which only tags for text are left."""
    html = bleach.clean(clean_lines(html), TAGS, ATTRIBUTES, PROTOCOLS, strip=True)
    return Markup(html)


def rendered(markdown: str, attachments: dict | None = None) -> Markup:
    """Markdown as HTML for reading; as it was typed where it is too long, or cannot be read.

    Never fails: one learner's text must not stop the pages of a class. Its time grows with
    the square of its length, half a second for the worst of MAX_MARKDOWN. Of attachments the
    pictures are shown that intake has kept.
    """
    markdown, pictures = without_pictures(markdown[:MOST_SHOWN], attachments or {})
    html = Markup("<pre>{}</pre>").format(clean_lines(markdown))
    if len(markdown) <= MAX_MARKDOWN:
        with suppress(Exception):  # nbconvert, mistune, bleach raise what they stumble over
            html = sanitized_html(markdown2html(markdown))
    return with_pictures(html, pictures)


def with_pictures(html: str, pictures: dict[str, Markup]) -> Markup:
    """Clean HTML with its pictures, each in the place of its word, but only between tags: in
    an attribute a picture's words would become attributes themselves.

    In clean HTML a < begins a tag and is nowhere else, while a > may stand in an attribute,
    too; what follows the last > before the next < is therefore text.
    """
    parts = []
    for part in str(html).split("<"):
        tag, end, text = part.rpartition(">")
        for word, picture in pictures.items() if "picture" in text else ():
            text = text.replace(word, str(picture))
        parts.append(tag + end + text)
    return Markup("<".join(parts))


def without_pictures(markdown: str, attachments: dict) -> tuple[str, dict[str, Markup]]:
    """The text with a word in the place of each picture, and {word: the picture in HTML}; a
    word that nobody can have written, since the text is in it. Each picture is shown once, as
    intake has named them, so that no page grows by repeating a large one."""
    attachments = dict(attachments)
    digest, pictures = hashlib.sha256(markdown.encode("utf-8", "replace")).hexdigest(), {}

    def place(found: re.Match) -> str:
        for kind, data in attachments.pop(found[2], {}).items():
            if kind in PICTURES:
                word = f"picture{digest}n{len(pictures)}n"
                picture = Markup('<img alt="{}" src="data:{};base64,{}">')
                pictures[word] = picture.format(words_of(found[1]), kind, data)
                return word
        return f"(a picture: {found[2]})"

    return ATTACHED.sub(place, markdown), pictures


def words_of(alt: str) -> str:
    """What is said of a picture: words, without any sign that means something in HTML."""
    return NO_WORDS.sub("", clean(alt))[:MAX_ALT]


def coloured(code: str) -> Markup:
    return Markup(highlight(clean_lines(code), PythonLexer(), CODE))


class SanitizeAnswers(Preprocessor):
    """For formgrader, which shows Markdown and names as they come: written answers without
    scripts, and below each its rubric and model answer, which are in no file that learners get;
    names as text."""

    enabled = True

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        for name in NAMES & resources.keys():
            resources[name] = resources[name] and escape(resources[name])
        return super().preprocess(nb, resources)

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, index: int
    ) -> tuple[NotebookNode, dict]:
        if cell.cell_type == "markdown" and is_solution(cell):
            answer = rendered(cell.source, cell.get("attachments"))
            html = str(answer) + grading_help(cell.metadata.nbgrader.grade_id)
            html = html.replace("[", "&#91;")  # no second Markdown in it
            html = re.sub(r"\n[ \t]*(?=\n)", "\n&#10;", html.strip())
            cell.source = f"<div>{html}</div>"
        return cell, resources


@cache
def grading_help(grade_id: str) -> str:
    """Rubric and model answer of a written question, as HTML."""
    asked = [(lab, q) for lab in LABS for q in lab.questions if q.answer_cell == grade_id]
    found = {name: text for each in asked for name, text in written_answer(*each).items()}
    return "".join(str(HELP.format(name, rendered(text))) for name, text in found.items())


class GetGrades(NbGraderPreprocessor):
    """The scores and comments in the gradebook, and which are still to be given, in a notebook:
    nbgrader's GetGrades in two questions instead of two for each cell, over one connection a
    run. A new connection forgets how its questions are put, which takes longer than to ask."""

    connection: GradebookConnection | None = None

    def preprocess(self, notebook: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        names, root = resources["nbgrader"], Path(self.config.CourseDirectory.root)
        rules, learner = read_rules(root).of(find_lab(names["assignment"])), names["student"]
        if self.connection is None:
            self.connection = GradebookConnection(names["db_url"])
        found = self.connection.do(lambda book: marks_of(book, rules, root, learner))
        names["lab"], names["marks"] = rules.lab, found[learner]
        return notebook, resources


@cache
def template() -> Template:
    loader = PackageLoader("labkit.grading", "templates")
    environment = Environment(loader=loader, autoescape=True)
    environment.globals |= {"tr": tr, "language": language}
    environment.filters |= {"points": shown, "signed": signed}
    return environment.get_template("feedback.html")


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
        names, folder = resources["nbgrader"], self.parent.coursedir
        graded, page = (
            Path(folder.format_path(step, names["student"], names["assignment"]))
            for step in (folder.autograded_directory, folder.feedback_directory)
        )
        copy_exchange_files(graded, page)
        return page_of(notebook, names["lab"], names["student"], names["marks"]), resources


def page_of(
    notebook: NotebookNode, lab: Lab, learner: str, marks: Marks, stamp: str = ""
) -> str:
    """The page of a graded notebook; the stamp is kept in it, to tell what it was made of."""
    spoken = notebook.get("metadata", {}).get("tinyllm", {}).get("language", ENGLISH)
    with speaking(spoken):
        return _page_of(notebook, lab, learner, marks, stamp)


def _page_of(notebook: NotebookNode, lab: Lab, learner: str, marks: Marks, stamp: str) -> str:
    return template().render(
        lab=lab,
        learner=clean(learner),
        name=clean(marks.name),
        attempt=marks.attempt,
        standing=marks.standing,
        stamp=stamp,
        exercises=[exercise_part(notebook, exercise, marks) for exercise in lab.exercises],
        questions=[question_part(notebook, question, marks) for question in lab.questions],
        code_css=Markup(CODE.get_style_defs(".highlight")),
    )


def exercise_part(notebook: NotebookNode, exercise: Exercise, marks: Marks) -> dict:
    """All that the page shows of an exercise."""
    check = cell_called(notebook, exercise.check_cell)
    answer = cell_called(notebook, exercise.answer_cell)
    shown = next((o.data for o in check.outputs if "data" in o and "text/html" in o.data), {})
    return {
        "exercise": exercise,
        "grade": marks.standing.exercises[exercise.id],
        "report": sanitized_html(shown.get("text/html", "")),
        "code": coloured(answer.source),
        "comment": comment_on(exercise, marks),
    }


def question_part(notebook: NotebookNode, question: Question, marks: Marks) -> dict:
    """A written question: what was asked, answered, given and said."""
    cell = cell_called(notebook, question.answer_cell)
    before = notebook.cells[notebook.cells.index(cell) - 1]
    asked = before.source if before.cell_type == "markdown" and not is_grade(before) else ""
    empty = cell.source.strip() in ("", EMPTY_ANSWER)
    answers = marks.answers.get(question.id, {})
    return {
        "question": question,
        "asked": rendered(HEADING.split(tr(asked.strip()))[-1]),
        "answer": "" if empty else rendered(cell.source, cell.get("attachments")),
        "grade": marks.standing.questions[question.id],
        "model": {tr(name): rendered(tr(text)) for name, text in answers.items()},
        "comment": comment_on(question, marks),
    }


def comment_on(part: Exercise | Question, marks: Marks) -> Markup | str:
    """What a person said; nbgrader's own word on blank answers is none."""
    comment = marks.comments.get(part.answer_cell) or ""
    return "" if comment == NO_RESPONSE else rendered(comment)
