"""Why is it wrong: the known mistakes perform the same calls, and those that give the learner's
very outcomes lend their sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from labkit.checks.advice import advice_on
from labkit.checks.compare import agree, distance, drawn_alike, identical
from labkit.checks.runner import Check, KnownMistake, Oracle, Result
from labkit.lang import tr
from labkit.sandboxed.call import Call, Outcome

BEGINNING = 200  # characters of an error that are compared
ENOUGH = 0.45  # of the failed weight, for a mistake that explains a part of it
FAULTS = 2  # named in one answer
MOST = 2  # sentences for mistakes that nothing tells apart


@dataclass(frozen=True)
class Reason:
    """A sentence for the learner, and how many of the failed checks it explains.

    either    sentences of mistakes that give the same outcomes; one of them is the cause
    """

    either: tuple[str, ...]
    explains: int = 0
    failed: int = 0

    @property
    def text(self) -> str:
        text = tr("; or: ").join(map(tr, self.either))
        if self.explains == self.failed:
            return text
        return tr(
            "{text} (that explains {explains} of the {failed} failed checks)",
            text=text,
            explains=self.explains,
            failed=self.failed,
        )


@dataclass(frozen=True)
class Diagnosis:
    """What is said of a wrong answer, and the failed checks for which no mistake was named."""

    reasons: list[Reason]
    unexplained: list[Check]

    @property
    def sentences(self) -> list[str]:
        return [sentence for reason in self.reasons for sentence in reason.either]


@dataclass
class Suspicion:
    """What speaks for one mistake: the failed checks that it explains."""

    sentence: str
    checks: list[Check] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # how near its numbers are

    @property
    def gap(self) -> float:
        return sum(self.gaps) / len(self.gaps)

    def weight(self, among: Iterable[Check]) -> float:
        return sum(check.points for check in among if check in self.checks)


def diagnose(result: Result, oracle: Oracle, cell: str = "") -> Diagnosis:
    """What is wrong, at most two faults, the one that explains more first.

    A mistake is named by the weight of the failed checks that it explains, if that is most of
    it, and never where a passed check contradicts it; a second one if it explains most of what
    the first leaves over. Where no mistake is named, an error may speak for itself.

    cell    the learner's code, for advice on an error
    """
    failed = [check for check in result.checks if check.passed is False]
    passed = [check for check in result.checks if check.passed]
    suspicions, found, rest = _suspicions(failed, oracle), [], failed
    while rest and len(found) < FAULTS:
        likely = _most_likely(suspicions, rest, passed, oracle)
        if not likely:
            break
        explained = [check for check in failed if check in likely[0].checks]
        sentences = tuple(each.sentence for each in likely)
        found.append(Reason(sentences, len(explained), len(failed)))
        rest = [check for check in rest if check not in explained]
        passed = [*passed, *explained]  # what one fault explains, a second must not change
    return Diagnosis(found or _errors(rest, result, cell), rest)


def _errors(failed: list[Check], result: Result, cell: str) -> list[Reason]:
    """What the first error says of its cause, if it is clear."""
    errors = [got.failure for check in failed for _, got in check.evidence if got.failure]
    said = advice_on(errors[0], result.exercise, cell) if errors else ""
    return [Reason((said,))] if said else []


def _suspicions(failed: list[Check], oracle: Oracle) -> dict[str, Suspicion]:
    """{name: what speaks for it} of the mistakes that explain a failed check."""
    found: dict[str, Suspicion] = {}
    for check in failed:
        gaps: dict[str, list[float]] = {}
        refuted: set[str] = set()
        sentences: dict[str, str] = {}
        for call, got in check.evidence:
            for suspect in oracle.suspects(call):
                if not suspect.costs or suspect.name in refuted:
                    continue
                if matches(call, got, suspect.outcome):
                    told = got.failure or call.summary
                    gap = 0.0 if told else distance(got, suspect.outcome)
                    gaps.setdefault(suspect.name, []).append(gap)
                    sentences[suspect.name] = suspect.sentence
                else:
                    refuted.add(suspect.name)
        for name in [name for name in gaps if name not in refuted]:  # in the file's order
            suspicion = found.setdefault(name, Suspicion(sentences[name]))
            suspicion.checks.append(check)
            suspicion.gaps += gaps[name]
    return found


def _most_likely(
    suspicions: dict[str, Suspicion], rest: list[Check], passed: list[Check], oracle: Oracle
) -> list[Suspicion]:
    """The mistake that explains most of the weight of `rest`, and its equals; [] if too little.

    Those that a passed check contradicts are taken out of `suspicions`.
    """
    enough = ENOUGH * sum(check.points for check in rest)
    for weight in sorted({each.weight(rest) for each in suspicions.values()}, reverse=True):
        if weight < enough:
            break
        names = [name for name, each in suspicions.items() if each.weight(rest) == weight]
        for name in _contradicted(names, passed, oracle):
            names.remove(name)
            del suspicions[name]
        if names:
            left = [suspicions[name] for name in names]
            best = min(left, key=lambda each: each.gap)
            limit = 1.5 * best.gap + 1e-6
            return [s for s in left if s.checks == best.checks and s.gap <= limit][:MOST]
    return []


def _contradicted(names: Iterable[str], passed: list[Check], oracle: Oracle) -> set[str]:
    """Those of the mistakes that would have failed a check which the learner passed."""
    left, out = set(names), set[str]()
    for call, got in [pair for check in passed for pair in check.evidence]:
        right = oracle.reference(call)  # got may be right in other words or other draws
        for suspect in oracle.suspects(call) if left else ():
            if suspect.name in left and not (
                agree(suspect.outcome, right) or matches(call, got, suspect.outcome)
            ):
                left.remove(suspect.name)
                out.add(suspect.name)
    return out


def matches(call: Call, got: Outcome, theirs: Outcome) -> bool:
    """Whether a mistake gave the learner's very outcome; two errors need the same words too.

    Long errors are cut where they are described, so that a name of another length moves the
    cut: their beginnings count. Counts of draws need not be equal: who draws in another way
    makes the same mistake.
    """
    if call.summary == "counts":
        return drawn_alike(got, theirs)
    errors = {o.failure.text[:BEGINNING] for o in (got, theirs) if o.failure}
    return len(errors) < 2 and agree(got, theirs)


def remarks(result: Result, oracle: Oracle) -> list[str]:
    """Sentences for a right answer that equals a harmless variant and not the reference."""
    if not result.passed:
        return []
    told_apart: dict[str, bool] = {}
    for call, got in [pair for check in result.checks for pair in check.evidence]:
        harmless: list[KnownMistake] = [s for s in oracle.suspects(call) if not s.costs]
        as_reference = harmless and identical(got, oracle.reference(call))
        for suspect in harmless:
            as_suspect = identical(got, suspect.outcome)
            if as_suspect and not as_reference:
                told_apart.setdefault(suspect.sentence, True)
            elif as_reference and not as_suspect:
                told_apart[suspect.sentence] = False
    return [tr(sentence) for sentence, shown in told_apart.items() if shown]
