"""Plausible wrong versions, each a kind of fault: solutions/mistakes/X.diff.

    ## RMSNorm                                  the symbol that the next mistakes get wrong

    eps-ignored: eps is not used: {value} is in its place
    mean_square + self.eps -> mean_square + {1e-5 | 1e-8 | 0}
    or mean_square + self.eps -> mean_square

    root-detached: no gradient flows through the root
    - keepdim=True)                             text of the right answer, which occurs once
    + keepdim=True).detach()                    what a learner wrote instead

A mistake is a title and edits of the reference. An edit is a line `find -> replace`, or lines
of `-` and `+`; lines of `+` alone are a whole answer. Edits are made one after the other; `or`,
before an edit or on a line of its own, begins an alternative under the same sentence. Each of
the values in braces, separated by ` | `, is tried (the same one in equal braces); `{value}` in
the sentence is the one that fits. `name (idea): ...` gives the kind of a mistake, and so its
cost (KINDS); the default is a part. Lines that begin with `# ` are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from itertools import product
from time import process_time
from typing import Any
from warnings import catch_warnings, simplefilter
from weakref import WeakKeyDictionary

from labkit.checks.reasons.steps import Steps
from labkit.course import cells, sealed
from labkit.course.paths import SOLUTIONS
from labkit.course.syllabus import Exercise, Lab
from labkit.sandbox.inside.call import Call, Failure, Outcome
from labkit.sandbox.inside.perform import perform

TITLE = re.compile(r"(?P<name>[a-z0-9-]+)(?: \((?P<kind>[a-z]+)\))?: (?P<sentence>.+)")
# The share of an exercise's points that a mistake costs, at least and at most, by its kind
KINDS = {
    "idea": (0.5, 1.0),  # the exercise's idea is missed
    "part": (0.2, 0.5),  # a part of it is missing or wrong
    "case": (0.1, 0.2),  # a case or a precision that the lab teaches
    "courtesy": (0.0, 0.05),
}
ONE_LINE = re.compile(r"(?P<find>.+?) ->(?: (?P<replace>.*))?")
ENDLESS = re.compile(r"\b(while|iter)\b")  # for code that a mistake makes endless
# for two mistakes at once: a list may grow while it is read
LOOP = re.compile(r"\b(while|for|iter)\b")
CHOICE = re.compile(r"\{([^{}]* \| [^{}]*)\}")
Edit = tuple[str, str]  # old text, new text


class MistakeError(ValueError):
    """An entry that cannot be read or does not fit the reference; the message names it."""


@dataclass(frozen=True)
class Mistake:
    """A fault. kind: one of KINDS; alternatives: the edits of each way to write it."""

    lab: Lab
    symbol: str
    name: str
    sentence: str
    kind: str
    alternatives: tuple[tuple[Edit, ...], ...]

    @property
    def exercise(self) -> Exercise:
        return next(e for e in self.lab.exercises if self.symbol in e.symbols)

    @property
    def cell(self) -> str:
        """The cell with the first version of the mistake."""
        return self.versions[0].cell

    @cached_property
    def versions(self) -> list[Version]:
        """Every alternative with every value."""
        return [version for edits in self.alternatives for version in self._filled(edits)]

    def _filled(self, edits: Sequence[Edit]) -> Iterator[Version]:
        choices = list(dict.fromkeys(m[1] for _, text in edits for m in CHOICE.finditer(text)))
        for values in product(*(choice.split(" | ") for choice in choices)):
            value_of = dict(zip(choices, values, strict=True))
            fill = partial(CHOICE.sub, lambda found: value_of[found[1]])  # noqa: B023
            filled = [(find, fill(text)) for find, text in edits]
            yield Version(self, tuple(filled), values[0] if values else "")


@dataclass(frozen=True, eq=False)
class Version:
    """One way to make a mistake, or two at once."""

    mistake: Mistake
    edits: tuple[Edit, ...]
    value: str = ""
    is_pair: bool = False

    @cached_property
    def cell(self) -> str:
        """The exercise's cell with the mistake in it.

        Errors: MistakeError: an edit that does not fit the reference
        """
        cell = reference_cell(self.mistake.lab, self.mistake.exercise)
        for find, replace in self.edits:
            if not find:
                cell = f"{cells.directive(self.mistake.exercise)}\n{replace}"
            elif cell.count(find) == 1:
                cell = edited(cell, find, replace)
            else:
                raise MistakeError(
                    f"mistake {self.mistake.name} of {self.mistake.symbol}: the text that it "
                    f"replaces must occur once, not {cell.count(find)} times: {find!r}"
                )
        return cell

    @cached_property
    def namespace(self) -> dict[str, Any]:
        """The namespace of the lab's reference module with this cell in place."""
        name = f"solutions.{self.mistake.lab.module}"
        names = dict(vars(import_module(name)))
        with catch_warnings():
            simplefilter("error", SyntaxWarning)  # what Python warns of cannot work
            code = compile(self.cell, f"{name}, {self.mistake.name}", "exec", dont_inherit=True)
        exec(code, names)
        return names

    @property
    def is_possible(self) -> bool:
        """Whether the edits fit, and Python takes what they give without a warning."""
        with suppress(MistakeError, SyntaxError):
            return bool(self.namespace)
        return False

    def also(self, other: Version) -> Version:
        """Combine two versions."""
        return Version(self.mistake, self.edits + other.edits, is_pair=True)


def edited(cell: str, find: str, replace: str) -> str:
    """Return the cell with `find` replaced; a line that becomes empty is dropped."""
    before, after = cell.split(find)
    above, _, left = before.rpartition("\n")
    right, _, below = after.partition("\n")
    if not (left + replace + right).strip():
        return f"{above}\n{below}"
    return before + replace + after


@cache
def reference_cell(lab: Lab, exercise: Exercise) -> str:
    """Return the exercise's cell in the reference, without solution marks."""
    block = cells.block(sealed.read_source(SOLUTIONS / f"{lab.module}.py"), exercise.id)
    if block is None:
        raise MistakeError(f"solutions/{lab.module}.py has no block for {exercise.id}")
    return cells.plain(block)


@cache
def mistakes_of(lab: Lab) -> list[Mistake]:
    """Return all mistakes listed for a lab, in the order of its file."""
    path = SOLUTIONS / "mistakes" / f"{lab.module}.diff"
    return list(parse_mistakes(lab, sealed.read_source(path)))


def parse_mistakes(lab: Lab, text: str) -> Iterator[Mistake]:
    """Parse a file. Errors: MistakeError for a line that is not a heading, title or edit."""
    symbol = ""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line for line in paragraph.splitlines() if line and line[:2] != "# "]
        if lines and lines[0].startswith("## "):
            symbol, *lines = lines[0][3:], *lines[1:]
        if not lines:
            continue
        title = TITLE.fullmatch(lines[0])
        if not title or not lines[1:]:
            raise MistakeError(f"mistakes/{lab.module}.diff: no title and edits: {lines[0]!r}")
        name, kind, sentence = title.group("name", "kind", "sentence")
        if kind not in (None, *KINDS):
            raise MistakeError(f"mistakes/{lab.module}.diff: {name}: no kind is called {kind}")
        ways = tuple(tuple(edits) for edits in _alternatives(lines[1:]))
        if "{value}" in sentence and not all(CHOICE.search(repr(edits)) for edits in ways):
            raise MistakeError(f"mistakes/{lab.module}.diff: {name}: not each way has a value")
        yield Mistake(lab, symbol, name, sentence, kind or "part", ways)


def _alternatives(lines: list[str]) -> Iterator[list[Edit]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == "or" or line.startswith("or "):
            parts.append([])
            line = line[3:]
        parts[-1] += [line] if line else []
    yield from ([*edits_of(part)] for part in parts)


def edits_of(lines: list[str]) -> Iterator[Edit]:
    """Parse the edits of a mistake. Errors: MistakeError for a line that is not an edit."""
    signs = "".join(line[0] if re.match(r"[-+]( |$)", line) else "=" for line in lines)
    for run in re.finditer(r"-+\+*|\++|=", signs):
        part = lines[run.start() : run.end()]
        if run[0] != "=":
            find, replace = ("\n".join(x[2:] for x in part if x[0] == s) for s in "-+")
        elif found := ONE_LINE.fullmatch(part[0]):
            find, replace = found["find"], found["replace"] or ""
        else:
            raise MistakeError(f"no edit: {part[0]!r}")
        yield find, replace


class Oracle:
    """Computes and keeps the outcomes of the right answer and of listed mistakes."""

    def __init__(self, lab: Lab):
        self.lab = lab
        self.namespace: Mapping[str, Any] = vars(import_module(f"solutions.{lab.module}"))
        self._right = WeakKeyDictionary[Call, Outcome]()  # kept as long as the call
        self._seconds = WeakKeyDictionary[Call, float]()
        self._steps = WeakKeyDictionary[Call, Steps]()
        self._wrong = WeakKeyDictionary[Call, dict[Version, Outcome]]()
        self._endless = WeakKeyDictionary[Version, Outcome]()

    def reference(self, call: Call) -> Outcome:
        if call not in self._right:
            start = process_time()
            self._right[call] = perform(call, self.namespace)
            self._seconds[call] = process_time() - start
        return self._right[call]

    def seconds(self, call: Call) -> float:
        """Return the processor seconds of the right outcome."""
        self.reference(call)
        return self._seconds[call]

    def mistaken(self, version: Version, call: Call) -> Outcome:
        """The outcome of a mistake; an error if it takes far longer than the right answer."""
        known = self._wrong.setdefault(call, {})
        if version not in known:
            known[version] = self._endless.get(version) or self._limited(version, call)
        return known[version]

    def _limited(self, version: Version, call: Call) -> Outcome:
        if not (LOOP if version.is_pair else ENDLESS).search(version.cell):
            return perform(call, version.namespace)
        with Steps(self._right_steps(call)) as steps:
            outcome = perform(call, version.namespace)
        if steps.stopped:  # also for later calls
            self._endless[version] = outcome = Outcome(failure=Failure("StepLimit", "no end"))
        return outcome

    def _right_steps(self, call: Call) -> Steps:
        if call not in self._steps:
            with Steps() as self._steps[call]:
                perform(call, self.namespace)
        return self._steps[call]

    def listed(self, symbols: set[str]) -> list[Version]:
        """Return the versions of the mistakes of these symbols, in the order of the file."""
        entries = [mistake for mistake in mistakes_of(self.lab) if mistake.symbol in symbols]
        return [version for mistake in entries for version in mistake.versions]
