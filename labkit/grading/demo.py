"""The demo: grade a made-up class of every lab, from notebooks to gradebook and report."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from labkit.author.edition import write_source
from labkit.checks.messages import error_text
from labkit.course.paths import LABKIT
from labkit.course.report import clean
from labkit.course.syllabus import LABS, Lab
from labkit.grading.judge.assembly import put_together
from labkit.grading.nbgrader.course import Course, CourseError
from labkit.grading.run.grade import grade_and_report
from labkit.grading.run.pool import GradingPool
from labkit.grading.run.schedule import Class
from labkit.grading.sample_class import hand_in, small_class
from labkit.model.chat.stream import Sampling
from labkit.model.hub import resolve
from labkit.model.tokenizer import Tokenizer
from labkit.model.weights import read, stored_tensors
from labkit.sandbox.inside.call import Call, Outcome
from labkit.sandbox.launch import LoadRequest, WorkerLauncher
from labkit.sandbox.probe import best_sandbox

MARKER = ".tinyllm-demo"
TALK = LABKIT / "sandbox" / "inside" / "injected" / "talk.py"
LAST = "generation"  # the last lab that a talking decoder needs
SEED = 1  # tokens of the story
LONGEST = 256  # tokens of an answer
QUESTIONS = ("Tell me a story about Mia and a red kite.", "Where is the kite?")


def demo(folder: Path, console: Console, labs: Sequence[Lab] = LABS) -> list[Class]:
    """Build, hand in, grade and report, all in a new `folder`; return each lab's class. A lab
    that needs a package that is not installed is left out, with a line that says so."""
    fresh(folder)
    course = Course(folder)
    with console.status("building the course folder"):
        write_source(course.root)
    graded: list[Class] = []
    with GradingPool(unsandboxed=True) as pool:  # the submissions are ours
        for lab in labs:
            if not lab.is_checkable:
                console.print(f"{lab.name}: not checked, it needs the package {lab.needs}")
                continue
            with console.status(f"lab {lab.number}: making a class, starting the judge"):
                course.release(lab)
                for learner in small_class(lab, course.released(lab), whole=lab is LABS[0]):
                    hand_in(folder, lab, learner)
            graded.append(
                grade_and_report(course, lab, console, pool, brief=lab is not LABS[0])
            )
            if lab is LABS[0] and len(labs) > 1:
                console.print("\nThe other labs, each with a class of a few notebooks:\n")
    talk(course, labs, best(graded), console)
    console.print(
        f"\nThe class, lab by lab: open {course.root}/class.html\n"
        "Talk with the model: tinyllm chat",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
    return graded


def fresh(folder: Path) -> None:
    """Empty the folder. Errors: CourseError if an earlier demo did not make it."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise CourseError(f"{folder} holds something else; name another with --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()


def best(graded: Sequence[Class]) -> str:
    """Return the learner with the most points in all labs; of several, the first one."""
    points: Counter[str] = Counter()
    for each in graded:
        for learner, submission in each.items():
            points[learner] += submission.score
    return max(points, key=points.__getitem__)


def talk(course: Course, labs: Sequence[Lab], learner: str, console: Console) -> None:
    """Let the learner's own decoder, assembled from all labs and confined, tell a story."""
    last = next(lab for lab in LABS if lab.module == LAST)
    answers = course.answers([lab for lab in labs if lab.number <= last.number], learner)
    sources, played = put_together(answers, last)
    rest = [lab for lab in LABS if set(lab.exercises) & set(played)]
    names = ", ".join(f"{lab.number} {lab.module}" for lab in rest)
    console.print(f"\n[bold]The decoder of the best submission, {learner}, talks:[/]")
    if rest:
        console.print(f"(the reference plays what is missing of {names})", highlight=False)
    sources["talk"] = TALK.read_text("utf-8")
    folder = resolve(None)
    tokenizer = Tokenizer(folder)
    inputs = inputs_of(folder, tokenizer)
    messages: list[dict[str, str]] = []
    with WorkerLauncher(best_sandbox()) as workers:
        request = LoadRequest(sources, "talk")
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            console.print(f"you> {question}", style="bold", highlight=False)
            prompt_ids = tokenizer.chat_prompt(messages)
            with console.status("the model writes"):
                call = Call("reply", prompt_ids=prompt_ids, **inputs)
                (outcome,) = workers.answer(request, [call]).outcomes
            answer = answer_of(outcome, tokenizer)
            console.print(answer, markup=False, highlight=False)
            messages.append({"role": "assistant", "content": answer})


def inputs_of(folder: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the arguments of `reply` besides the prompt: the checkpoint in float32, which is
    fastest on a processor, and how to sample from it."""
    return {
        "config": json.loads((folder / "config.json").read_text("utf-8")),
        "weights": {name: t.float() for name, t in read(stored_tensors(folder))},
        "seed": SEED,
        "max_new_tokens": LONGEST,
        "eos_token_id": sorted(tokenizer.stop_ids),
        **asdict(Sampling.chosen(tokenizer.generation)),
    }


def answer_of(outcome: Outcome, tokenizer: Tokenizer) -> str:
    """Return the reply as text, or in brackets why there is none."""
    ids, size = outcome.value, tokenizer.library.get_vocab_size()
    if outcome.failure:
        return f"(no answer: {clean(error_text(outcome.failure))})"
    if type(ids) is not list or not all(type(i) is int and 0 <= i < size for i in ids):
        return "(no answer: these were no tokens)"
    return clean(tokenizer.decode(ids)).strip()
