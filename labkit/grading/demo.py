"""The demo: the course's main job on a class that it makes, from notebooks to gradebook."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from labkit.grading.classroom import hand_in, small_class
from labkit.grading.course import Course, CourseError
from labkit.grading.crew import Crew
from labkit.grading.run import Row
from labkit.grading.session import grade_and_report
from labkit.model.talk import load_voice
from labkit.syllabus import LABS, Lab

MARKER = ".tinyllm-demo"
SEED = 5  # of the story
QUESTIONS = ("Tell me a story about Anna and a red ball.", "Where is the ball?")


def demo(folder: Path, console: Console, labs: Sequence[Lab] = LABS) -> list[Row]:
    """Build, hand in, grade, give feedback, report; all under `folder`, made anew."""
    fresh(folder)
    course = Course(folder)
    course.build_source()
    rows: list[Row] = []
    with Crew() as crew:
        for lab in labs:
            course.release(lab)
            for learner in small_class(lab, course.released(lab), whole=lab is LABS[0]):
                hand_in(folder, lab, learner)
            rows += grade_and_report(course, lab, console, crew)
    talk(console)
    return rows


def fresh(folder: Path) -> None:
    """An empty folder; one that this demo did not make is left alone."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise CourseError(f"{folder} holds something else; name another folder with --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()


def talk(console: Console) -> None:
    """The decoder, put together from the parts of every lab, writes on a checkpoint."""
    voice = load_voice(None, "solutions", {}, None, SEED, None, "cpu")
    console.print("\n[bold]The decoder, assembled from the reference's parts, talks:[/]")
    messages: list[dict[str, str]] = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        console.print(f"you> {question}", style="bold", highlight=False)
        prompt_ids = voice.tokenizer.chat_prompt(messages)
        answer = ""
        for piece in voice.pieces(prompt_ids):
            console.print(piece, end="", markup=False, highlight=False, soft_wrap=True)
            answer += piece
        console.print()
        messages.append({"role": "assistant", "content": answer})
    console.print("`tinyllm chat` goes on from here", highlight=False)
