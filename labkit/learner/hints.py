"""The ladder of help: three hints for every exercise, then the answer."""

from __future__ import annotations

import re

from labkit.course import cells, sealed
from labkit.course.lang import said, tr
from labkit.course.paths import SOLUTIONS
from labkit.course.report import Report, Status
from labkit.course.syllabus import Exercise, Lab, UnknownName
from labkit.learner import record

RUNGS = (said("idea"), said("shape and API"), said("near-code"))
OF_A_HUNT = said(
    "Find an input for which it is wrong: an author's tests leave out zeros, settings that are "
    "not the default, parts of unequal length. Then go through the code with this input, line "
    "by line, and compare each value with what the docstring asks for. The folded text below "
    "the hunt in the notebook tells which line it is."
)
HEADING = re.compile(r"^(##|###) +(.+?) *$", re.MULTILINE)


def sections(text: str) -> dict[str, dict[str, str]]:
    """Parse a hints or answers file: {exercise or question id: {heading: text}}"""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    marks = list(HEADING.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        if mark[1] == "##":
            current = found.setdefault(mark[2], {})
        else:
            end = following.start() if following else len(text)
            current[mark[2]] = text[mark.end() : end].strip()
    return found


def rungs(lab: Lab, exercise: Exercise) -> list[str]:
    """The texts of the three rungs; a bug hunt has one"""
    if exercise.hunt:
        return [OF_A_HUNT]
    path = SOLUTIONS / "hints" / f"{lab.module}.md"
    found = sections(path.read_text("utf-8"))[exercise.id]
    return [found[name] for name in RUNGS]


def hints_shown(exercise: Exercise) -> int:
    """The number of the last rung that the learner has seen, 0 before the first"""
    rung = record.remembered(record.HINTS).get(exercise.id)
    return rung if rung in range(last_rung(exercise) + 1) else 0


def last_rung(exercise: Exercise) -> int:
    return 1 if exercise.hunt else len(RUNGS)


def climb(exercise: Exercise, rung: int | None) -> int:
    """Return the number of the next rung, or `rung`, and remember it."""
    rung = rung or min(hints_shown(exercise) + 1, last_rung(exercise))
    if rung != hints_shown(exercise):
        record.remember(record.HINTS, exercise.id, rung)
    return rung


def hint_report(
    lab: Lab, exercise: Exercise, rung: int | None, ask: str, ask_answer: str
) -> Report:
    """Show the next rung, or rung number `rung`.

    ask           text that asks for a hint, such as hint("1.2")
    ask_answer    text that asks for the answer

    Errors: UnknownName for a rung that does not exist
    """
    last = last_rung(exercise)
    if rung is not None and rung not in range(1, last + 1):
        raise UnknownName(
            tr("there is no rung {rung}: the rungs are 1 to {last}", rung=rung, last=last)
        )
    rung = climb(exercise, rung)
    text, step = rungs(lab, exercise)[rung - 1], next_help(lab, exercise, ask, ask_answer)
    if rung == last:
        step = tr("that was the last rung; {answer}", answer=step)
    return Report(
        tr("Hint {id}  {title}", id=exercise.id, title=exercise.title),
        Status.HELP,
        [(RUNGS[rung - 1].split()[0], tr(text)), ("next", step)],
        tr("rung {rung} of {count}", rung=rung, count=last),
    )


def next_help(lab: Lab, exercise: Exercise, ask: str, ask_answer: str) -> str:
    """The next step of a learner who is stuck: the next rung, after the last one the answer"""
    rung, last = hints_shown(exercise) + 1, last_rung(exercise)
    if rung <= last:
        return tr("{ask} shows rung {rung} of {count}", ask=ask, rung=rung, count=last)
    if is_open(lab):
        return tr("{ask} shows the answer", ask=ask_answer)
    return explain_lock(lab)


def is_open(lab: Lab) -> bool:
    """Whether the reference of a lab may be shown: the lab is practice, the reference is not
    sealed, or the learner's core exercises pass."""
    is_plain = not lab.graded or not sealed.is_sealed(SOLUTIONS / f"{lab.module}.py")
    return is_plain or lab.module in record.passed_labs()


def explain_lock(lab: Lab) -> str:
    return tr(
        "the answers of lab {number} are sealed; they open once the core of the lab passes. "
        "You can go on to the next exercise: the course's own code stands in for this one",
        number=lab.number,
    )


def solution_text(lab: Lab, exercise: Exercise, ask: str) -> str:
    """Return the reference's code for an exercise.

    ask    text that asks for a hint

    Errors: LookupError if the code is sealed, or rungs are left
    """
    if not is_open(lab):
        raise LookupError(explain_lock(lab))
    if hints_shown(exercise) < last_rung(exercise) and not record.has_passed(lab, exercise):
        rung = next_help(lab, exercise, ask, "")
        raise LookupError(tr("the answer comes after the last rung; {rung}", rung=rung))
    block = cells.block(sealed.read_source(SOLUTIONS / f"{lab.module}.py"), exercise.id)
    assert block is not None
    return cells.plain(block)
