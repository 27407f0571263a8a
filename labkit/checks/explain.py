"""What the checks found, for a person to read: right first, then the first thing wrong."""

from __future__ import annotations

from labkit.checks.runner import Result
from labkit.core.report import Report, Status

MOST_LOOKS = 4


def learner_report(result: Result, why: list[str], notes: list[str], next_step: str) -> Report:
    """The report under a check cell: only the first thing wrong."""
    heading = result.exercise.heading
    if result.broken:
        rows = [("look", f"the check itself failed, not you: {result.broken}")]
        return Report(heading, Status.NOT_CHECKED, [*rows, ("next", "please report this")])
    if result.interrupted:
        rows = [("look", "the check was interrupted")]
        step = "look for a loop that never ends"
        return Report(heading, Status.NOT_CHECKED, [*rows, ("next", step)])
    right = _right(result)
    rows = [("ok", " | ".join(right))] if right else []
    if result.passed:
        rows += [("note", note) for note in notes]
        return Report(heading, Status.PASSED, [*rows, ("next", next_step)])
    failure = result.first_failure
    assert failure is not None and failure.difference is not None
    rows.append(("look", f"{failure.title}: {failure.difference.look}"))
    rows += _why_rows(why)
    return Report(heading, Status.NOT_YET, [*rows, ("next", next_step)])


def _why_rows(why: list[str]) -> list[tuple[str, str]]:
    """The row of causes; empty if no known mistake fits."""
    if not why:
        return []
    return [("why", "this is what comes out when " + ", or when ".join(why))]


def _right(result: Result) -> list[str]:
    """Titles of passed checks, then what is right in the first failed one."""
    titles = list(dict.fromkeys(check.title for check in result.checks if check.passed))
    failure = result.first_failure
    facts = failure.difference.right if failure and failure.difference else []
    skipped = [f"{check.title}: not checked" for check in result.checks if check.passed is None]
    return titles + facts + skipped


def graded_report(result: Result, why: list[str], notes: list[str], intake: str = "") -> Report:
    """The report in a graded notebook: every check, but no number of the reference."""
    heading = result.exercise.heading
    verdict = f"{result.score:g} of {result.exercise.points} points"
    rows = [("look", intake)] if intake else []
    if result.broken:
        rows.append(("look", "the check itself failed: a person has to look at this"))
    failed = {check.title for check in result.checks if check.passed is False}
    passed = dict.fromkeys(c.title for c in result.checks if c.passed and c.title not in failed)
    rows += [("ok", title) for title in passed]
    looks, seen = [], set[str]()  # no check twice, and no fault
    for check in result.checks:
        if check.passed is False and check.difference:
            look = check.difference.redacted or check.difference.look
            if not seen & {check.title, look}:
                looks.append(f"{check.title}: {look}")
            seen |= {check.title, look}
    rows += [("look", look) for look in looks[:MOST_LOOKS]]
    if len(looks) > MOST_LOOKS:
        rows.append(("look", f"and {len(looks) - MOST_LOOKS} more"))
    rows += _why_rows(why)
    rows += [("note", note) for note in notes]
    status = Status.PASSED if result.passed else Status.NOT_YET
    return Report(heading, status, rows, verdict)
