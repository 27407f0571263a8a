"""The front page: on one screen, the model that a learner will build."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image
from torch import set_num_threads

from labkit.author.owned_cells import notebook_path, read_notebook
from labkit.course.lang import language, tr
from labkit.course.paths import ROOT
from labkit.course.syllabus import Lab
from labkit.learner.figures.architecture import alt_text, draw
from labkit.learner.models import load_chat_model, say
from labkit.site.addresses import repository
from storyworld import prompt

TEMPLATES = Path(__file__).parent
STILL = "look.jpg"  # in _static
FILMS = {"en": "look.webp", "zh": "look.zh.webp"}  # benchmarks/film.py makes them
REQUEST = "Tell me a story about Anna and a red ball."
QUESTION = "Where is the red ball?"
VERSION = re.compile(r"^(version|date-released): (.+)$", re.MULTILINE)
ASKED = re.compile(r"\*\*[^*]*?[:：]\s*(.+?)\*\*")


def front(labs: Sequence[Lab], folder: Path) -> str:
    """Return the page as Markdown; write its figure into `folder`."""
    set_num_threads(1)  # the processors execute notebooks
    model, tokenizer = load_chat_model()
    advised = tokenizer.generation.get("temperature", 0.0)
    story = say(model, tokenizer, prompt(REQUEST), temperature=advised, seed=1)
    answer = say(model, tokenizer, prompt(REQUEST, story, QUESTION))
    (folder / "map.svg").write_text(draw(), "utf-8")
    write_still(folder / "_static")
    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=True
    )
    jinja.globals["tr"] = tr
    return jinja.get_template("front.md.jinja").render(
        labs=[(lab, tr(lab.title), question(lab), lab.minutes) for lab in labs],
        talk=(REQUEST, story, QUESTION, answer),
        alt=alt_text(),
        still=STILL,
        film=FILMS[language()],
        repository=repository(),
        version=version(),
    )


def version() -> tuple[str, str]:
    """Return the number and the date of the last release, from CITATION.cff."""
    found = dict(VERSION.findall((ROOT / "CITATION.cff").read_text("utf-8")))
    return found["version"], found["date-released"]


def write_still(folder: Path) -> None:
    """Write a still picture of the film, for readers who prefer no motion, and for previews."""
    folder.mkdir(exist_ok=True)
    with Image.open(TEMPLATES / "static" / FILMS[language()]) as pictures:
        pictures.seek(pictures.n_frames // 2)
        pictures.convert("RGB").save(folder / STILL, quality=85)


def descriptions(labs: Sequence[Lab]) -> dict[str, str]:
    """{page: a sentence on it}"""
    course = tr("Write Qwen3 from scratch in PyTorch, in notebooks that check it.")
    return {"index": course, **{lab.name: question(lab) for lab in labs}}


def question(lab: Lab) -> str:
    """Return the question at the beginning of its notebook."""
    text = ASKED.search(tr(read_notebook(notebook_path(lab)).cells[0].source.strip()))[1]
    return text[0].upper() + text[1:]
