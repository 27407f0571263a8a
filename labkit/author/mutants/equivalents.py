"""Mutants that are right answers: solutions/equivalents/X.diff, each with the reason.

    ## RMSNorm.forward                          the function that the next ones are in

    more precise than promised, and the result is the same
    - wide = hidden_states.float()              the line of the reference, without its comment
    + wide = hidden_states.double()             what the mutant has instead

A reason holds for all pairs below it. `tinyllm mutants` prints its survivors in this form.
"""

from __future__ import annotations

from labkit.author.mutants.making import Key, key_of
from labkit.checks.mistakes import edits_of
from labkit.course.paths import SOLUTIONS
from labkit.course.syllabus import Lab


def equivalents_of(lab: Lab) -> dict[Key, str]:
    """{key of a mutant: why no check can tell it from the reference}"""
    path = SOLUTIONS / "equivalents" / f"{lab.module}.diff"
    return parsed(path.read_text("utf-8")) if path.exists() else {}


def parsed(text: str) -> dict[Key, str]:
    found: dict[Key, str] = {}
    scope, reason, lines = "", "", list[str]()
    for line in [*text.splitlines(), "## "]:
        if line[:2] in ("- ", "+ "):
            lines.append(line)
            continue
        found |= {key_of(scope, *pair): reason for pair in edits_of(lines)}
        lines.clear()
        if line.startswith("## "):
            scope = line[3:]
        elif line.strip():
            reason = line
    return found
