"""Every message that a person may meet, its place, and its catalog.

A catalog belongs to one lab, to all labs (course.po), or to the figures (figures.po).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from babel.messages.extract import extract_from_dir

from labkit.author.owned_cells import authored, read_or_begin
from labkit.author.reference import references
from labkit.author.translation import texts
from labkit.author.translation.labels import labels_of
from labkit.author.translation.prints import printed_texts
from labkit.checks.mistakes import mistakes_of
from labkit.course.paths import LABKIT, ROOT, SOLUTIONS, TESTS
from labkit.course.report import LABELS, Status
from labkit.course.syllabus import NOTEBOOKS, Lab
from labkit.course.terminal import TEACHERS
from labkit.learner import hints
from labkit.learner.figures import architecture
from labkit.look import page
from labkit.sandbox.inside import banned

EVERYWHERE = "course"
FIGURES = "figures"
KEYWORDS = {"tr": None, "said": None, "ntr": (1, 2), "CheckpointError": None, "ChatError": None}
SAID_BY = [("**.py", "python"), ("**.jinja", "jinja2"), ("**.html", "jinja2")]
# packages whose commands are translated too
LEARNERS = ("labkit/learner", "labkit/look", "training")
PAGES = ("labkit/author/learners/README.md",)


class Message(NamedTuple):
    """text: the English; with a number, (one, many). where: the file, and the place in it."""

    text: str | tuple[str, str]
    where: str


def catalogs() -> dict[str, list[Message]]:
    """{catalog: its messages, in the order in which a reader meets them}; each occurs once."""
    found, seen = {}, set()
    for name, messages in [
        *((lab.module, of_lab(lab)) for lab in NOTEBOOKS),
        (FIGURES, of_figures()),
        (EVERYWHERE, of_course()),
    ]:
        found[name] = []
        for message in messages:
            if message.text and message.text not in seen:
                seen.add(message.text)
                found[name].append(message)
    return found


def of_lab(lab: Lab) -> Iterator[Message]:
    notebook = read_or_begin(lab)
    yield Message(lab.title, f"labkit/course/labs/{lab.name}.toml")
    for cell in notebook.cells:
        where = f"notebooks/{lab.name}.ipynb {cell.id}"
        if cell.cell_type == "markdown":
            yield Message(authored(lab, cell), where)
        else:
            yield from (Message(text, where) for text in printed_texts(cell.source))
    for name, outcome in lab.predictions.items():
        for text in (*outcome.choices.values(), outcome.why):
            yield Message(text, f"labkit/course/labs/{lab.name}.toml {name}")
    for name, text in lab.captions.items():
        yield Message(text, f"labkit/course/labs/{lab.name}.toml {name}")
    for folder in ("hints", "answers"):
        path = SOLUTIONS / folder / f"{lab.module}.md"
        if path.exists():
            for name, parts in hints.sections(path.read_text("utf-8")).items():
                yield from (
                    Message(text, f"solutions/{folder}/{lab.module}.md {name} {part}")
                    for part, text in parts.items()
                )
    for path in references():
        if path.stem == lab.module:
            for text in texts.prose_of(path.read_text("utf-8")):
                yield Message(text, f"solutions/{path.name}")
    for kind in ("visible", "hidden"):
        path = TESTS / kind / f"test_{lab.module}.py"
        if path.exists():
            for text in check_titles(path.read_text("utf-8")):
                yield Message(text, f"tests/{kind}/test_{lab.module}.py")
    for mistake in mistakes_of(lab) if lab.exercises else ():
        yield Message(mistake.sentence, f"solutions/mistakes/{lab.module}.diff {mistake.name}")


def check_titles(source: str) -> Iterator[str]:
    """Yield the titles of the checks in reports: see labkit/checks/declared.py."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield (ast.get_docstring(node) or "").partition("\n")[0]
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("check"):
            texts_here = [word.value for word in node.args if isinstance(word, ast.Constant)]
            yield from texts_here[ast.unparse(node.func) == "check" :]  # check("1.2", title)


def of_figures() -> Iterator[Message]:
    for lab in NOTEBOOKS:
        cells = read_or_begin(lab).cells
        code = [cell.source for cell in cells if cell.cell_type == "code"]
        for text in labels_of(code):
            yield Message(text, f"notebooks/{lab.name}.ipynb")
    folder = LABKIT / "learner" / "figures"
    for path, _, text, _, _ in extract_from_dir(folder, SAID_BY, keywords=KEYWORDS):
        yield Message(text, f"labkit/learner/figures/{path}")
    for text in architecture.words():
        yield Message(text, "labkit/learner/figures/architecture.svg")


def of_course() -> Iterator[Message]:
    for text in (*LABELS, *(status.value for status in Status)):
        yield Message(text, "labkit/course/report.py")
    for text in (banned.DRAWING, banned.FINISHED):
        yield Message(text, "labkit/sandbox/inside/banned.py")
    for text in (*page.words().values(), page.NO_SCRIPT):
        yield Message(text, "labkit/look/static/words.js")
    config = SOLUTIONS / "config.py"
    for text in texts.prose_of(config.read_text("utf-8")):
        yield Message(text, "solutions/config.py")
    for path in PAGES:
        for text in texts.sections_of((ROOT / path).read_text("utf-8")):
            yield Message(text.strip(), path)
    for package in (LABKIT, ROOT / "training"):
        found = extract_from_dir(
            package, SAID_BY, keywords=KEYWORDS, comment_tags=(), directory_filter=_spoken
        )
        for path, _, text, _, _ in found:
            yield Message(text, f"{package.name}/{path}")
    yield from of_commands()


def _spoken(folder: str) -> bool:
    return Path(folder).name not in ("__pycache__", "learners", "static", "lang")


def of_commands() -> Iterator[Message]:
    """Yield the texts of `tinyllm --help` and of the learners' commands: see labkit/cli.py."""
    commands = [path for package in LEARNERS for path in (ROOT / package).rglob("commands.py")]
    for path in [LABKIT / "cli.py", LABKIT / "course/terminal.py", *commands]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(map(_of_typer, node.decorator_list)):
                texts_here = [ast.get_docstring(node) or ""]
            elif isinstance(node, ast.Call):
                given = [word.value for word in node.keywords if word.arg == "help"]
                texts_here = [each.value for each in given if isinstance(each, ast.Constant)]
            else:
                continue
            for text in texts_here:
                yield Message(text, path.relative_to(ROOT).as_posix())
    for package in TEACHERS:
        path = ROOT / package.replace(".", "/") / "commands.py"
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any(map(_of_typer, node.decorator_list)):
                text = ast.get_docstring(node).partition("\n")[0]
                yield Message(text, path.relative_to(ROOT).as_posix())


def _of_typer(decorator: ast.expr) -> bool:
    """Whether a decorator is @app.command() or similar."""
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "app.command"
