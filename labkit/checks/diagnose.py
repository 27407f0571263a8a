"""Why is it wrong: the listed mistakes perform the same calls, and the one that gives the
learner's very outcomes lends its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations

from labkit.checks.compare import agree, distance, matches
from labkit.checks.errors import advice_on, forgotten_self, raises
from labkit.checks.facts import facts_about
from labkit.checks.mistakes import KINDS, MistakeError, Oracle, Version
from labkit.checks.runner import CheckResult, Result
from labkit.course.lang import tr

ENOUGH = 0.45  # of the failed weight, for a mistake that explains a part of it
FAULTS = 2  # named in one answer
EQUALS = 2  # sentences of mistakes that nothing tells apart
PAIRS = 80  # tried at most where no mistake alone explains an answer


@dataclass(frozen=True)
class Reason:
    """A sentence for the learner, and how many of the failed checks it explains.

    versions    of mistakes that give the same outcomes; one of them is the cause
    """

    versions: tuple[Version, ...]
    explains: int = 0
    failed_count: int = 0

    @property
    def text(self) -> str:
        text = tr("; or: ").join(map(sentence_of, self.versions))
        if self.explains == self.failed_count:
            return text
        counts = {"explains": self.explains, "failed": self.failed_count}
        return tr(
            "{text} (that explains {explains} of the {failed} failed checks)",
            text=text,
            **counts,
        )


@dataclass(frozen=True)
class Diagnosis:
    """What is known about a wrong answer.

    advice    on its first error, where no mistake is named
    facts     about the failed checks that no mistake explains
    bounds    the share of the points that it costs, at least and at most
    """

    reasons: Sequence[Reason] = ()
    advice: str = ""
    facts: Sequence[str] = ()
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Of a report."""
        whys = [reason.text for reason in self.reasons] + [self.advice] * bool(self.advice)
        return [("why", text) for text in whys] + [("look", text) for text in self.facts]

    @property
    def versions(self) -> list[Version]:
        """Of the mistakes that are told."""
        return [version for reason in self.reasons for version in reason.versions]

    @property
    def mistakes(self) -> list[str]:
        """The names of these mistakes."""
        return [version.mistake.name for version in self.versions]


def sentence_of(version: Version) -> str:
    sentence = tr(version.mistake.sentence)
    return sentence.replace("{value}", version.value)


def diagnose(result: Result, oracle: Oracle, cell: str = "") -> Diagnosis:
    """What is wrong, at most two faults, the one that explains more first.

    A mistake is named by the weight of the failed checks that it explains, if that is most of
    it, and never where a passed check contradicts it. Where no mistake is named, an error may
    speak for itself, and facts about the numbers are told.

    cell    the learner's code, for advice on an error
    """
    if not result.failed:
        return Diagnosis()
    if slip := forgotten_self(cell):
        return Diagnosis(advice=slip)
    search = Search(result, oracle, cell)
    reasons = search.reasons()
    advice = "" if reasons else _advice(result, cell)
    rest = search.unexplained
    facts = facts_about(result, rest, oracle) if rest else ()
    return Diagnosis(reasons, advice, facts, _bounds(search, reasons))


def _bounds(search: Search, reasons: Sequence[Reason]) -> tuple[float, float]:
    """What the kinds of the named mistakes say of the share of the points that is lost.

    A name limits the loss where it explains all that is wrong and the answer computes
    something: of one that mostly raises errors, what works counts.
    """
    kinds = [[KINDS[version.mistake.kind] for version in r.versions] for r in reasons]
    least = max((min(low for low, _ in bounds) for bounds in kinds), default=0.0)
    most = sum(max(high for _, high in bounds) for bounds in kinds)
    raised = sum(check.points for check in search.failed if search.raised(check))
    computes = 2 * raised <= sum(check.points for check in search.failed)
    return least, min(most, 1.0) if kinds and computes and not search.unexplained else 1.0


def _advice(result: Result, cell: str) -> str:
    """What the first error says of its cause, if it is clear."""
    outcomes = (outcome for check in result.failed for outcome in check.outcomes)
    failure = next((outcome.failure for outcome in outcomes if outcome.failure), None)
    return advice_on(failure, result.exercise, cell) if failure else ""


@dataclass
class Evidence:
    """The failed checks that one mistake explains, and how near its numbers are."""

    version: Version
    checks: list[CheckResult] = field(default_factory=list)
    gap: float = 0.0

    def weight(self, among: Sequence[CheckResult]) -> float:
        return sum(check.points for check in among if check in self.checks)


class Search:
    """Looks for the mistakes that explain the failed checks of one answer."""

    def __init__(self, result: Result, oracle: Oracle, cell: str = ""):
        self.oracle, self.cell = oracle, cell
        self.failed = list(result.failed)
        self.passed = [check for check in result.checks if check.passed]
        self.unexplained = self.failed
        symbols = {call.symbol for check in self.failed for call in check.check.calls}
        self.versions = oracle.listed(symbols)

    def seconds(self, result: CheckResult) -> float:
        """How long the right answer takes; it decides what is performed first, never what is
        told."""
        return sum(map(self.oracle.seconds, result.check.calls))

    def reasons(self) -> list[Reason]:
        found: list[Evidence] = []
        passed, rest, reasons = self.passed, self.failed, []
        while rest and len(found) < FAULTS and (equals := self.most_likely(rest, passed)):
            explained = equals[0].checks
            reasons.append(self.reason(equals))
            found.append(equals[0])
            passed = [*passed, *explained]  # what one fault explains, a second must not change
            rest = [check for check in rest if check not in explained]
        if rest and (pair := self.pair(rest)):
            first, second, both = pair
            rest = [check for check in self.failed if check not in both.checks]
            reasons = [self.reason([Evidence(v, both.checks)]) for v in (first, second)]
        self.unexplained = rest
        return merge_reasons(reasons)

    def reason(self, equals: Sequence[Evidence]) -> Reason:
        likely = [e for e in equals if e.version.calls_only_what(self.cell)] or equals
        versions = {evidence.version.mistake: evidence.version for evidence in likely}
        explained = len(equals[0].checks)
        return Reason(tuple(versions.values())[:EQUALS], explained, len(self.failed))

    def most_likely(self, rest: list[CheckResult], passed: list[CheckResult]) -> list[Evidence]:
        """The mistake that explains most of the weight of `rest`, and its equals; [] if too
        little."""
        weight = sum(check.points for check in rest)
        cheapest = min(rest, key=self.seconds)  # what explains all explains this one
        found = self.explaining(cheapest, rest, [])
        if whole := self.best(found, rest, passed, weight):
            return whole
        for probe in (rest[0], rest[-1]):  # a mistake that explains a part must explain one
            found += self.explaining(probe, rest, found)
        return self.best(found, rest, passed, ENOUGH * weight)

    def explaining(
        self, probe: CheckResult, rest: list[CheckResult], found: list[Evidence]
    ) -> list[Evidence]:
        """The mistakes that explain one check, without those that are found already."""
        known = {evidence.version for evidence in found}
        fresh = [v for v in self.versions if v not in known and self.explains(v, probe)]
        return [self.evidence(version, rest) for version in fresh]

    def best(
        self,
        found: list[Evidence],
        rest: list[CheckResult],
        passed: list[CheckResult],
        enough: float,
    ) -> list[Evidence]:
        """Of mistakes that no passed check contradicts, the one of most weight, and its equals;
        [] if none has enough."""
        weights = sorted({evidence.weight(rest) for evidence in found}, reverse=True)
        for weight in [weight for weight in weights if weight >= enough - 1e-9]:
            likely = [evidence for evidence in found if evidence.weight(rest) == weight]
            left = [evidence for evidence in likely if self.holds(evidence.version, passed)]
            if left:
                best = min(left, key=lambda evidence: evidence.gap)
                limit = 1.5 * best.gap + 1e-6
                return [e for e in left if e.checks == best.checks and e.gap <= limit]
        return []

    def pair(self, rest: list[CheckResult]) -> tuple[Version, Version, Evidence] | None:
        """Two mistakes that together explain a check which none explains, and most others."""
        probe = rest[0]
        if self.raised(probe):
            return None  # the error speaks for itself
        at_work = [
            v for v in self.versions if self.changes(v, probe) and self.holds(v, self.passed)
        ]
        enough = max(ENOUGH * sum(c.points for c in self.failed), self._explained(rest))
        for first, second in list(combinations(at_work, 2))[:PAIRS]:
            both = combine(first, second)
            if both is None or not self.explains(both, probe):
                continue
            found = self.evidence(both, self.failed)
            if found.weight(self.failed) > enough and self.holds(both, self.passed):
                return first, second, found
        return None

    def _explained(self, rest: list[CheckResult]) -> float:
        return sum(check.points for check in self.failed if check not in rest)

    def evidence(self, version: Version, checks: list[CheckResult]) -> Evidence:
        explained = [check for check in checks if self.explains(version, check)]
        pairs = [pair for c in explained for pair in self.outcomes(version, c)]
        gaps = [0.0 if a.failure or call.summary else distance(a, b) for call, a, b in pairs]
        return Evidence(version, explained, sum(gaps) / max(len(gaps), 1))

    def outcomes(self, version: Version, result: CheckResult):
        """(call, the learner's outcome, the mistake's) of a check; the last one lazily."""
        check = result.check
        wrong = (self.oracle.mistaken(version, call) for call in check.calls)
        others = check.viewed([*wrong]) if check.declaration.view else wrong
        calls = check.calls[-len(result.outcomes) :]
        for call, answer, other in zip(calls, result.outcomes, others, strict=False):
            known = other.failure and other.failure.kind == "ValueError"  # no error of torch's
            if known and answer.failure and raises(self.cell, answer.failure.line):
                other = replace(other, failure=replace(other.failure, text=answer.failure.text))
            yield call, answer, other

    def explains(self, version: Version, result: CheckResult) -> bool:
        return all(matches(*triple) for triple in self.outcomes(version, result))

    def right(self, result: CheckResult):
        return result.check.viewed([self.oracle.reference(c) for c in result.check.calls])

    def holds(self, version: Version, passed: Sequence[CheckResult]) -> bool:
        """Whether no passed check contradicts a mistake: it passes, or is passed alike."""
        return all(
            agree(other, right) or matches(call, answer, other)
            for result in passed
            for (call, answer, other), right in zip(
                self.outcomes(version, result), self.right(result), strict=False
            )
        )

    def raised(self, result: CheckResult) -> bool:
        """Whether the answer raised an error where the reference raises none."""
        pairs = zip(result.outcomes, self.right(result), strict=False)
        return any(answer.failure and not right.failure for answer, right in pairs)

    def changes(self, version: Version, result: CheckResult) -> bool:
        """Whether a mistake alone fails a check."""
        triples = zip(self.outcomes(version, result), self.right(result), strict=False)
        return not all(agree(other, right) for (_, _, other), right in triples)


def merge_reasons(reasons: Sequence[Reason]) -> list[Reason]:
    """One reason for each sentence: a mistake may have been made in two ways at once."""
    by_sentence: dict[tuple[str, ...], Reason] = {}
    for reason in reasons:
        sentences = tuple(map(sentence_of, reason.versions))
        before = by_sentence.get(sentences, replace(reason, explains=0))
        explains = min(before.explains + reason.explains, reason.failed_count)
        by_sentence[sentences] = replace(before, explains=explains)
    return list(by_sentence.values())


def combine(first: Version, second: Version) -> Version | None:
    """Both mistakes at once, in the order in which their edits fit."""
    for both in (first.also(second), second.also(first)):
        with suppress(MistakeError, SyntaxError):
            both.namespace  # noqa: B018  it is compiled here
            return both if first.mistake is not second.mistake else None
    return None
