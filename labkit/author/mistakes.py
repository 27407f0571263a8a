"""Plausible wrong versions, each an edit of the reference: solutions/mistakes/X.diff.

    ## RMSNorm                                  the symbol that the next mistakes get wrong

    root-detached: no gradient flows through the root: a detach or no_grad stands round it
    - keepdim=True)                             what stands in the right answer, exactly once
    + keepdim=True).detach()                    what a learner wrote instead

A mistake may have several edits, made one after the other; one of `+` lines alone is a whole
answer. `name (remark): ...` marks a version that costs nothing. The sentence stands by itself
and says what the wrong code does. Lines that begin with `# ` are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from labkit.author.reference import BuildError, reference, reference_block
from labkit.checks.reference import LiveReference
from labkit.core import cells
from labkit.core.paths import SOLUTIONS
from labkit.core.syllabus import Exercise, Lab

TITLE = re.compile(r"(?P<name>[a-z0-9-]+)(?P<remark> \(remark\))?: (?P<sentence>.+)")


@dataclass(frozen=True)
class Mistake:
    """One wrong version; `edits` are pairs of what is found and what stands there instead."""

    lab: Lab
    symbol: str
    name: str
    sentence: str
    costs: bool  # False: a remark
    edits: tuple[tuple[str, str], ...]

    @property
    def exercise(self) -> Exercise:
        return next(e for e in self.lab.exercises if self.symbol in e.symbols)

    @cached_property
    def cell(self) -> str:
        """The exercise's cell as a learner who makes this mistake hands it in.

        Errors: an edit that does not fit the reference any more: BuildError
        """
        cell = cells.plain(reference_block(self.lab, self.exercise))
        for find, instead in self.edits:
            if not find:
                cell = f"{cells.directive(self.exercise)}\n{instead}"
            elif cell.count(find) == 1:
                cell = edited(cell, find, instead)
            else:
                raise BuildError(
                    f"mistake {self.name} of {self.symbol}: what it replaces must stand there "
                    f"once, not {cell.count(find)} times: {find!r}"
                )
        return cell

    @cached_property
    def namespace(self) -> dict[str, Any]:
        """The lab's module of the reference with this cell in it."""
        source = cells.with_block(cells.plain(reference(self.lab)), self.exercise, self.cell)
        name = f"solutions.{self.lab.module}"
        names: dict[str, Any] = {"__name__": name, "__package__": "solutions"}
        exec(compile(source, f"{name}, {self.name}", "exec", dont_inherit=True), names)
        return names


def edited(cell: str, find: str, instead: str) -> str:
    """`find` replaced; a line of which nothing is left goes."""
    before, after = cell.split(find)
    above, _, left = before.rpartition("\n")
    right, _, below = after.partition("\n")
    if not (left + instead + right).strip():
        return f"{above}\n{below}"
    return before + instead + after


@cache
def mistakes_of(lab: Lab) -> list[Mistake]:
    """All mistakes and remarks listed for a lab, in the order of its file."""
    path = SOLUTIONS / "mistakes" / f"{lab.module}.diff"
    return list(parsed(lab, path.read_text("utf-8")))


def parsed(lab: Lab, text: str) -> Iterator[Mistake]:
    """The mistakes in a file; BuildError for a line that is nothing known."""
    symbol, title, lines = "", None, list[str]()
    for number, line in enumerate([*text.splitlines(), "## "], 1):
        if line[:2] in ("- ", "+ ") or line in ("-", "+"):
            lines.append(line)
            continue
        found = TITLE.fullmatch(line)
        if title and (found or line.startswith("## ")):
            name, remark, sentence = title.group("name", "remark", "sentence")
            yield Mistake(lab, symbol, name, sentence, remark is None, tuple(edits(lines)))
            title, lines = None, []
        if line.startswith("## "):
            symbol = line[3:]
        elif found:
            title = found
        elif line.strip() and not line.startswith("# "):
            raise BuildError(
                f"mistakes/{lab.module}.diff, line {number} is no heading, mistake or edit"
            )


def edits(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Pairs of (find, replace) from lines of `-` and `+`; a `-` after a `+` opens the next."""
    marks = "".join(line[0] for line in lines)
    for run in re.finditer(r"-+\+*|\++", marks):
        part = lines[run.start() : run.end()]
        find, instead = ("\n".join(x[2:] for x in part if x[0] == mark) for mark in "-+")
        yield find, instead


def live_reference(lab: Lab) -> LiveReference:
    """Right answers from `solutions`, wrong ones from the listed mistakes."""
    namespace = vars(import_module(f"solutions.{lab.module}"))
    return LiveReference(namespace, mistakes_of(lab))
