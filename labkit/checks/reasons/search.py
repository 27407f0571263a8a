"""The search for listed mistakes that give exactly the learner's outcomes: one mistake, two
that explain different checks, or two combined.

Outcomes are compared and not texts, as a mistake can be written in many ways. The price is to
perform the candidates, hence the limits of seconds and pairs below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, groupby
from math import inf
from time import thread_time

from labkit.checks.compare import agree, distance, matches
from labkit.checks.mistakes import Oracle, Version
from labkit.checks.reasons.source import UNCLEAR, is_refuted, raises, share_found
from labkit.checks.runner import CheckResult, Result
from labkit.sandbox.inside.call import Call, Outcome, tensors_in

ENOUGH = 0.45  # share of the failed weight that a mistake must explain
FAULTS = 2  # mistakes named for one answer
EQUALS = 2  # sentences of mistakes with the same outcomes
PROBES = 4  # failed checks for which explaining mistakes are searched
PAIRS = 24  # pairs of mistakes that are tried at most
# seconds of CPU time, after which only mistakes that the code shows are tried
QUICK_SECONDS = 0.5
MOST_SECONDS = 6.0  # seconds after which no mistake is tried


@dataclass
class Evidence:
    """The failed checks that one mistake explains, and the distance of its numbers.

    parts    the two versions combined in it, if it is a pair
    """

    version: Version
    checks: list[CheckResult] = field(default_factory=list)
    gap: float = 0.0
    parts: tuple[Version, ...] = ()

    def weight(self, among: Sequence[CheckResult]) -> float:
        return sum(check.points for check in among if check in self.checks)

    def share(self, among: Sequence[CheckResult]) -> float:
        """The share of the weight of these checks, or of those of the mistake's function."""
        symbol = self.version.mistake.symbol
        same = [check for check in among if check.failure_call.symbol == symbol]
        weights = [(self.weight(c), sum(x.points for x in c)) for c in (among, same) if c]
        return max((part / whole for part, whole in weights if whole), default=0.0)


class Search:
    """Looks for the mistakes that explain the failed checks of one answer.

    Mistakes whose edits the learner's code shows most come first, so that few calls have to be
    performed.

    is_part    whether the checks look at a part of the result: then pairs of mistakes are not
               tried, and the code has to show some of a named mistake's edit
    """

    def __init__(self, result: Result, oracle: Oracle, cell: str = "", is_part: bool = False):
        self.oracle, self.cell, self.is_part = oracle, cell, is_part
        self.shares: dict[Version, float] = {}
        self.failed = list(result.failed)
        self.passed = [check for check in result.checks if check.passed]
        self.passed.sort(key=self.seconds)  # quick checks first, to find a contradiction soon
        symbols = {call.symbol for check in self.failed for call in check.check.calls}
        self.versions = sorted(oracle.listed(symbols), key=self.share, reverse=True)
        self.evidence_found: list[Evidence] = []
        self.start = thread_time()

    def found(self) -> list[list[Evidence]]:
        """Return at most FAULTS mistakes, each as a list of versions with the same outcomes."""
        found: list[list[Evidence]] = []
        passed, rest = self.passed, self.failed
        while rest and len(found) < FAULTS and (equals := self.most_likely(rest, passed)):
            found.append(equals)
            # a second fault must not change these checks either
            passed = [*passed, *equals[0].checks]
            rest = [check for check in rest if check not in equals[0].checks]
        named = [equals[0].version for equals in found]
        if rest and not self.is_part and (both := self.pair(rest, named)):
            of_one = [self.evidence(version, self.failed) for version in both.parts]
            for part in of_one:  # alone it explains some checks, with the other more
                part.checks = [c for c in self.failed if c in part.checks or c in both.checks]
            found = [[part] for part in of_one]
        self.evidence_found = [equals[0] for equals in found]
        return found

    def seconds(self, result: CheckResult) -> float:
        """Return how long the right answer takes: quick checks are performed first."""
        return sum(map(self.oracle.seconds, result.check.calls))

    def share(self, version: Version) -> float:
        """Return the share of a version's edit that the learner's code shows."""
        if version not in self.shares:
            self.shares[version] = share_found(version, self.cell)
        return self.shares[version]

    def probes(self, checks: Iterable[CheckResult]) -> list[CheckResult]:
        """Choose a few quick ones of the failed checks, for different functions."""
        by_function: dict[object, CheckResult] = {}
        for check in sorted(checks, key=self.seconds):
            by_function.setdefault(check.check.declaration, check)
        return sorted(by_function.values(), key=self.seconds)[:PROBES]

    @property
    def is_late(self) -> bool:
        return thread_time() - self.start > MOST_SECONDS

    def most_likely(self, rest: list[CheckResult], passed: list[CheckResult]) -> list[Evidence]:
        """Return the mistake that explains most of the weight of `rest`, and its equals; [] if
        none explains enough."""
        found: list[Evidence] = []
        for number, probe in enumerate(self.probes(rest)):
            for share, versions in groupby(self.versions, self.share):
                if self.cell and share <= self.least_share(probe, number):
                    break
                found += self.explaining(probe, rest, versions, found)
                if whole := self.best(found, rest, passed, 1.0):
                    return whole  # versions with a smaller share are not needed
        whole = [e for e in found if self.share(e.version) == 1 and self.is_real(e)]
        enough = self.best(found, rest, passed, ENOUGH)
        return enough or self.best(whole, rest, passed, 0.0)

    def least_share(self, probe: CheckResult, number: int) -> float:
        """Return the share of its edit that the code must exceed before a mistake is tried on a
        probe: a mistake that explains everything explains the first probe; errors alone name no
        mistake."""
        is_error = probe.difference.kind == "nan" or self.raised(probe)
        is_quick = number == 0 and thread_time() - self.start < QUICK_SECONDS
        return UNCLEAR if is_error else -inf if is_quick else 0.0

    def explaining(
        self,
        probe: CheckResult,
        rest: list[CheckResult],
        versions: Iterable[Version],
        found: list[Evidence],
    ) -> list[Evidence]:
        """Return those of these mistakes that explain a check and are not found already."""
        known = {evidence.version for evidence in found}
        return [
            self.evidence(version, rest)
            for version in versions
            if version not in known and not self.is_late and self.explains(version, probe)
        ]

    def best(
        self,
        found: list[Evidence],
        rest: list[CheckResult],
        passed: list[CheckResult],
        enough: float,
    ) -> list[Evidence]:
        """Return the mistake of most weight that no passed check contradicts, and its equals;
        [] if none has a large enough share."""
        found = [e for e in found if e.share(rest) >= enough - 1e-9]
        for weight in sorted({evidence.weight(rest) for evidence in found}, reverse=True):
            likely = [e for e in found if e.weight(rest) == weight and self.is_shown(e)]
            left = [e for e in likely if self.holds(e.version, passed)]
            if left:
                best = min(left, key=lambda evidence: evidence.gap)
                limit = 1.5 * best.gap + 1e-6
                equals = [e for e in left if e.checks == best.checks and e.gap <= limit]
                return self.nearest(equals)
        return []

    def nearest(self, equals: list[Evidence]) -> list[Evidence]:
        """Of mistakes with equal outcomes, keep those that the code shows most; one a
        sentence."""
        most = max(self.share(e.version) for e in equals)
        near = [e for e in equals if self.share(e.version) >= most - 1e-9]
        return [*{e.version.mistake: e for e in reversed(near)}.values()][::-1][:EQUALS]

    def is_shown(self, evidence: Evidence) -> bool:
        """Whether numbers support a mistake or, if all outcomes are errors and NaN, the
        learner's code does; never if the arguments that the code reads refute it."""
        parts = evidence.parts or (evidence.version,)
        if any(is_refuted(version, self.cell) for version in parts):
            return False
        kinds = {check.difference.kind for check in evidence.checks if not self.raised(check)}
        if not self.cell:
            return True
        if not kinds - {"nan"}:
            return all(self.share(version) > UNCLEAR for version in parts)
        is_partial = self.is_part or len(evidence.checks) < len(self.failed)
        least = 0.0 if self.is_real(evidence) else UNCLEAR
        if self.is_part or (is_partial and least):
            return all(self.share(version) > least for version in parts)
        return True

    def is_real(self, evidence: Evidence) -> bool:
        """Whether several real numbers agree; one, or whole numbers, may agree by chance."""
        outcomes = [o for check in evidence.checks for o in check.outcomes]
        values = [part for o in outcomes for part in (o.values, o.grads, o.state)]
        tensors = [tensor for _, tensor in tensors_in(values, "")]
        return any(t.is_floating_point() and t.numel() > 1 for t in tensors)

    def pair(self, rest: list[CheckResult], named: Sequence[Version]) -> Evidence | None:
        """Return two mistakes that together explain a check that no single one explains, and
        most others.

        named    mistakes that explain some checks: tried first, each with all others
        """
        explained = sum(check.points for check in self.failed if check not in rest)
        enough = max(ENOUGH * sum(c.points for c in self.failed), explained)
        numbers = [c for c in rest if c.difference.kind != "nan" and not self.raised(c)]
        for probe in self.probes(numbers or rest):
            for both, parts in self.combined(probe, named):
                if self.explains(both, probe):
                    found = replace(self.evidence(both, self.failed), parts=parts)
                    if found.weight(self.failed) > enough and self.is_likely(found):
                        return found
        return None

    def is_likely(self, both: Evidence) -> bool:
        """Whether the code shows some of both mistakes, and no passed check contradicts."""
        parts = not self.cell or all(self.share(version) > 0 for version in both.parts)
        return parts and self.is_shown(both) and self.holds(both.version, self.passed)

    def combined(
        self, probe: CheckResult, named: Sequence[Version]
    ) -> Iterator[tuple[Version, tuple[Version, Version]]]:
        """Yield pairs that may explain a check: the named mistakes with all others, then pairs
        of those that change it, first those whose edits the learner's code shows most."""
        least = 1.0 if self.raised(probe) else UNCLEAR  # errors alone prove little
        shown = [v for v in self.versions if not self.cell or self.share(v) >= least]
        likely = [v for v in shown if not self.is_late and self.holds(v, self.passed[:PROBES])]
        at_work = [v for v in likely if not self.is_late and self.changes(v, probe)]
        pairs = [(first, second) for first in named for second in likely]
        pairs += sorted(
            combinations(at_work, 2), key=lambda p: -self.share(p[0]) - self.share(p[1])
        )
        for first, second in pairs[:PAIRS]:
            if self.is_late:
                return
            both = combine(first, second)
            if both is not None:
                yield both, (first, second)

    def evidence(self, version: Version, checks: list[CheckResult]) -> Evidence:
        explained = [check for check in checks if self.explains(version, check)]
        pairs = [pair for c in explained for pair in self.outcomes(version, c)]
        gaps = [0.0 if a.failure or call.summary else distance(a, b) for call, a, b in pairs]
        return Evidence(version, explained, sum(gaps) / max(len(gaps), 1))

    def outcomes(
        self, version: Version, result: CheckResult
    ) -> Iterator[tuple[Call, Outcome, Outcome]]:
        """(call, the learner's outcome, the mistake's) of a check; the last one lazily."""
        check = result.check
        wrong = (self.oracle.mistaken(version, call) for call in check.calls)
        others = check.viewed([*wrong]) if check.declaration.view else wrong
        calls = check.calls[-len(result.outcomes) :]
        for call, answer, other in zip(calls, result.outcomes, others, strict=False):
            # not an error of torch's
            known = other.failure and other.failure.kind == "ValueError"
            if known and answer.failure and raises(self.cell, answer.failure.line):
                other = replace(other, failure=replace(other.failure, text=answer.failure.text))
            yield call, answer, other

    def explains(self, version: Version, result: CheckResult) -> bool:
        return all(matches(*triple) for triple in self.outcomes(version, result))

    def right(self, result: CheckResult) -> list[Outcome]:
        return result.check.viewed([self.oracle.reference(c) for c in result.check.calls])

    def holds(self, version: Version, passed: Sequence[CheckResult]) -> bool:
        """Whether a mistake passes each passed check, or gives the learner's outcome there."""
        return all(
            agree(other, right) or matches(call, answer, other)
            for result in passed
            for (call, answer, other), right in zip(
                self.outcomes(version, result), self.right(result), strict=False
            )
        )

    def raised(self, result: CheckResult) -> bool:
        """Whether the answer raised an error and the reference did not."""
        pairs = zip(result.outcomes, self.right(result), strict=False)
        return any(answer.failure and not right.failure for answer, right in pairs)

    def changes(self, version: Version, result: CheckResult) -> bool:
        """Whether a mistake fails a check, and raises an error only if the answer does."""
        triples = [*zip(self.outcomes(version, result), self.right(result), strict=False)]
        errors = any(other.failure and not answer.failure for (_, answer, other), _ in triples)
        return not errors and not all(agree(other, right) for (_, _, other), right in triples)


def combine(first: Version, second: Version) -> Version | None:
    """Combine two mistakes, in the order in which their edits fit."""
    for both in (first.also(second), second.also(first)):
        if both.is_possible:
            return both if first.mistake is not second.mistake else None
    return None
