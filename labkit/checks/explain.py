"""What the checks found, for a person to read: what to look at, why, and what is right."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.checks.diagnose import Reason
from labkit.checks.runner import Result
from labkit.core.report import Report, Status
from labkit.lang import tr

MOST_LOOKS = 4
FOLD = 130  # characters
NOT_CHECKED = ": not checked"


def learner_report(
    result: Result,
    why: Sequence[Reason] = (),
    known: Sequence[str] = (),
    notes: Sequence[str] = (),
    next_step: str = "",
) -> Report:
    """The report under a check cell: the first thing wrong, why, then what is right.

    known    what else is known of the failed checks that no reason explains
    """
    heading = result.exercise.heading
    if result.broken:
        rows = [("look", tr("the check itself failed, not you: {fault}", fault=result.broken))]
        return Report(heading, Status.NOT_CHECKED, [*rows, ("next", tr("please report this"))])
    if result.interrupted:
        rows = [("look", tr("the check was interrupted"))]
        step = tr("look for a loop that never ends")
        return Report(heading, Status.NOT_CHECKED, [*rows, ("next", step)])
    right = folded(_right(result), result)
    rows = [("ok", right)] if right else []
    if result.passed:
        rows += [("note", note) for note in notes]
        points = result.exercise.points
        verdict = tr("passed, {points} of {points} points", points=points) if points else ""
        return Report(heading, Status.PASSED, [*rows, ("next", next_step)], verdict)
    failure = result.first_failure
    assert failure is not None and failure.difference is not None
    look = titled(failure.title, failure.difference.look)
    looks = [("look", look), *_cause_rows(why, known)]
    return Report(heading, Status.NOT_YET, [*looks, *rows, ("next", next_step)])


def titled(title: str, look: str) -> str:
    """What is wrong and in which check; "values: values differ" would stutter."""
    if look.startswith(f"{title} "):
        return look
    return tr("{title}: {look}", title=title, look=look)


def _cause_rows(why: Sequence[Reason], known: Sequence[str]) -> list[tuple[str, str]]:
    return [("why", reason.text) for reason in why] + [("look", text) for text in known]


def folded(right: list[str], result: Result) -> str:
    """What is right in two lines; a longer list becomes a count."""
    text = " | ".join(right)
    if len(text) <= FOLD:
        return text
    passed = sum(bool(check.passed) for check in result.checks)
    count = tr("{passed} of {count} checks", passed=passed, count=len(result.checks))
    skipped = [part for part in right if part.endswith(NOT_CHECKED)]
    return " | ".join([count, *skipped])


def _right(result: Result) -> list[str]:
    """Titles of passed checks, then what is right in the first failed one."""
    titles = list(dict.fromkeys(check.title for check in result.checks if check.passed))
    failure = result.first_failure
    facts = failure.difference.right if failure and failure.difference else []
    skipped = [f"{check.title}{NOT_CHECKED}" for check in result.checks if check.passed is None]
    return titles + facts + skipped


def graded_report(
    result: Result,
    why: Sequence[Reason] = (),
    known: Sequence[str] = (),
    notes: Sequence[str] = (),
    intake: str = "",
) -> Report:
    """The report in a graded notebook: every check, but no number of the reference."""
    verdict = tr(
        "{score:g} of {points} points", score=result.score, points=result.exercise.points
    )
    rows = [("look", intake)] if intake else []
    if result.broken:
        rows.append(("look", tr("the check itself failed: a person has to look at this")))
    rows += [("look", look) for look in _graded_looks(result)] + _cause_rows(why, known)
    failed = {check.title for check in result.checks if check.passed is False}
    passed = dict.fromkeys(c.title for c in result.checks if c.passed and c.title not in failed)
    rows += [("ok", " | ".join(passed))] if passed else []
    rows += [("note", note) for note in notes]
    status = Status.PASSED if result.passed else Status.NOT_YET
    return Report(result.exercise.heading, status, rows, verdict)


def _graded_looks(result: Result) -> list[str]:
    """The first failed checks, no check twice and no fault twice."""
    looks, seen = [], set[str]()
    for check in result.checks:
        if check.passed is False and check.difference:
            look = check.difference.redacted or check.difference.look
            if not seen & {check.title, look}:
                looks.append(titled(check.title, look))
            seen |= {check.title, look}
    rest = len(looks) - MOST_LOOKS
    return looks[:MOST_LOOKS] + ([tr("and {rest} more", rest=rest)] if rest > 0 else [])
