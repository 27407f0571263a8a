"""Why is it wrong: sentences of listed mistakes, causes of errors, slips in the source, and
facts, each with the case that it explains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import thread_time

import torch

from labkit.checks.errors import advice_on
from labkit.checks.facts import facts_about, inputs_of, without_effect
from labkit.checks.mistakes import KINDS, Oracle, Version, reference_cell
from labkit.checks.reasons.edits import edits_of
from labkit.checks.reasons.parts import (
    MOST_NAMED,
    PLAIN,
    are_values_right,
    right_and_wrong,
    seen_through,
)
from labkit.checks.reasons.search import EQUALS, FAULTS, Evidence, Search
from labkit.checks.reasons.slips import fatal_slip, idle_part, likely_slip
from labkit.checks.reasons.source import occurs_in
from labkit.checks.runner import CheckResult, Result
from labkit.course.lang import tr
from labkit.course.syllabus import Exercise
from labkit.sandbox.inside.call import Failure

LEAST_LOST = 0.1  # share of the points that an answer without a named mistake loses at least
MOST_SECONDS = 0.3  # seconds of CPU time to try small edits of the right answer
A_PART = 0.25  # share of the weight: an answer with this much right has the idea
NAMELESS = {"NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError"}
Finding = tuple[CheckResult | None, str, str]  # its case, None for the first; label and text


@dataclass(frozen=True)
class Reason:
    """A sentence for the learner, and how many of the failed checks it explains.

    versions    of mistakes that give the same outcomes; one of them is the cause
    case        the first failed check that it explains
    cell        the learner's code: only text that occurs in it is quoted
    part        of the result, if the reason is only about that
    """

    versions: tuple[Version, ...]
    explains: int = 0
    failed_count: int = 0
    case: CheckResult | None = None
    cell: str = ""
    part: str = ""
    checks: Sequence[CheckResult] = ()  # the checks that it explains

    @property
    def text(self) -> str:
        text = tr("; or: ").join(sentence_of(version, self.cell) for version in self.versions)
        if self.part:
            return self.part + tr(": ") + text
        if self.explains == self.failed_count:
            return text
        data = {"text": text, "explains": self.explains, "failed": self.failed_count}
        return tr("{text} (that explains {explains} of the {failed} failed checks)", **data)


@dataclass(frozen=True)
class Diagnosis:
    """What is known about a wrong answer.

    advice    on its first error or its source, if no mistake is named
    facts     about the first failed check that no mistake explains
    bounds    the share of the points that it costs, at least and at most
    error     the check whose error the advice is on
    unexplained    the check that the facts are about
    """

    reasons: Sequence[Reason] = ()
    advice: str = ""
    facts: Sequence[str] = ()
    bounds: tuple[float, float] = (0.0, 1.0)
    error: CheckResult | None = None
    unexplained: CheckResult | None = None

    @property
    def findings(self) -> list[Finding]:
        """Everything in a report besides the failed cases themselves."""
        return [*self._findings()]

    def _findings(self) -> Iterator[Finding]:
        for reason in self.reasons:
            yield reason.case, "why", reason.text
        if self.advice:
            yield self.error, "why", self.advice
        for text in self.facts:
            yield self.unexplained, "look", text

    @property
    def versions(self) -> list[Version]:
        """The versions of the reported mistakes."""
        return [version for reason in self.reasons for version in reason.versions]

    @property
    def mistakes(self) -> list[str]:
        """The names of these mistakes."""
        return [version.mistake.name for version in self.versions]


def sentence_of(version: Version, cell: str = "") -> str:
    """Return a mistake's sentence; its value is quoted if it is a number or in the cell."""
    sentence = tr(version.mistake.sentence)
    if occurs_in(version.value, cell):
        return sentence.replace("{value}", version.value)
    return sentence.replace("`{value}`", "{value}").replace("{value}", tr("something else"))


def diagnose(result: Result, oracle: Oracle, cell: str = "") -> Diagnosis:
    """Find what is wrong: at most two faults, the one that explains more first.

    A mistake is named if it explains most of the weight of the failed checks and no passed
    check contradicts it. If none is named, the report gives advice on an error, and facts about
    the numbers.

    cell    the learner's code
    """
    if not result.failed:
        return Diagnosis()
    if slip := fatal_slip(cell):
        return Diagnosis(advice=slip)
    error = next((check for check in result.failed if _failure(check)), None)
    advice = advice_on(_failure(error), result.exercise, cell) if error else ""
    if advice and error is result.first_failure and _failure(error).kind in NAMELESS:
        return Diagnosis(advice=advice, error=error)
    search = Search(result, oracle, cell)
    reasons = merge_reasons([_reason(search, equals) for equals in search.found()])
    explained = {id(check) for reason in search.evidence_found for check in reason.checks}
    rest = [check for check in result.failed if id(check) not in explained]
    advice = advice or likely_slip(cell, reference_cell(oracle.lab, result.exercise))
    if reasons and rest and without_effect(result.failed, oracle):
        reasons, rest = [], list(result.failed)  # the facts are about one of the failed checks
    if not reasons and not advice:
        reasons = _reasons_by_part(result, oracle, cell)
    advice = "" if reasons else advice
    if rest and not advice and not without_effect(rest, oracle):
        more = _by_edit(search, result.exercise, rest)
        less = [r for r in reasons if any(all(c in m.checks for c in r.checks) for m in more)]
        reasons = merge_reasons([*(r for r in reasons if r not in less), *more])
        explained |= {id(check) for reason in reasons for check in reason.checks}
        rest = [check for check in rest if id(check) not in explained]
    bounds = _bounds(search, reasons, rest)
    facts = facts_about(result, rest, oracle) if rest else []
    if not reasons and not advice:
        idle, name, is_cause = idle_part(cell, reference_cell(oracle.lab, result.exercise))
        error = next((c for c in result.failed if name in inputs_of(c.failure_call)), None)
        advice = idle if error or is_cause else ""
        facts = facts if not idle or name or is_cause else [idle, *facts]
    return Diagnosis(reasons, advice, facts, bounds, error, rest[0] if rest else None)


def _reason(search: Search, equals: Sequence[Evidence]) -> Reason:
    checks = equals[0].checks
    versions = tuple(evidence.version for evidence in equals)
    counts = len(checks), len(search.failed)
    return Reason(versions, *counts, checks[0], search.cell, checks=checks)


def _reasons_by_part(result: Result, oracle: Oracle, cell: str) -> list[Reason]:
    """Find mistakes that explain a part of the result: one of several values, or the numbers if
    a dtype, a gradient or an input is wrong as well."""
    kinds = {check.difference.kind for check in result.failed}
    keys = right_and_wrong(result.failed, oracle)[1]
    if len(keys) > MOST_NAMED:
        return []
    keys |= {PLAIN: tr("values")} if kinds & {"dtype", "changed", "grad", "state"} else {}
    cases = {check.check.address: check for check in result.failed}
    # {sentence: reasons}, as several parts may have the same sentence
    found: dict[str, Reason] = {}
    for key, word in keys.items():
        search = Search(seen_through(result, oracle, key), oracle, cell, is_part=True)
        for reason in (_reason(search, equals) for equals in search.found()):
            sentence = replace(reason, explains=reason.failed_count).text
            if before := found.get(sentence):
                word = before.part + tr(", ") + word
            case = cases[reason.case.check.address] if reason.case else None
            found[sentence] = replace(reason, case=case, part=word)
    return [*found.values()][:FAULTS]


def _by_edit(search: Search, exercise: Exercise, rest: list[CheckResult]) -> list[Reason]:
    """Find small edits of the right answer: for each function those that give exactly the
    outcomes of all its checks, if nothing else explains the rest of them."""
    start, reasons, kind = thread_time(), [], _mildest_kind(search) or "part"
    edits = edits_of(search.oracle.lab, exercise, search.cell, kind) if search.cell else []
    is_early = lambda share: thread_time() - start < share * MOST_SECONDS  # noqa: E731
    edits = [version for version in edits if is_early(0.5) and search.share(version) > 0]
    edits.sort(key=search.share, reverse=True)
    for symbol in {check.failure_call.symbol: None for check in rest}:
        checks = [check for check in rest if check.failure_call.symbol == symbol]
        quick, found = sorted(checks, key=search.seconds), list[Evidence]()
        for version in edits:
            if not is_early(1.0) or len(found) == EQUALS:
                break
            if (
                version.is_possible
                and all(search.explains(version, check) for check in quick)
                and search.is_shown(Evidence(version, checks))
                and search.holds(version, search.passed)
            ):
                found.append(search.evidence(version, search.failed))
        reasons += [_reason(search, found)] if found else []
    return reasons


def merge_reasons(reasons: Sequence[Reason]) -> list[Reason]:
    """Merge reasons with one sentence: a mistake may have been made in two ways at once."""
    by_sentence: dict[str, Reason] = {}
    for reason in reasons:
        key = replace(reason, explains=reason.failed_count).text
        before = by_sentence.get(key, replace(reason, explains=0))
        explains = min(before.explains + reason.explains, reason.failed_count)
        by_sentence[key] = replace(before, explains=explains)
    return list(by_sentence.values())


def _bounds(
    search: Search, reasons: Sequence[Reason], rest: Sequence[CheckResult]
) -> tuple[float, float]:
    """Return the least and the most share of points lost, by the kinds of the named mistakes;
    if there are none, by the kind of the checks that fail.

    A named mistake limits the loss only if it explains every failure and the answer computes
    something; an answer that mostly raises errors is worth the parts that work.
    """
    kinds = [[KINDS[version.mistake.kind] for version in r.versions] for r in reasons]
    if not kinds:
        return KINDS[kind] if (kind := _mildest_kind(search)) else (LEAST_LOST, _most(search))
    least = max(min(low for low, _ in bounds) for bounds in kinds)
    most = sum(max(high for _, high in bounds) for bounds in kinds)
    raised = sum(check.points for check in search.failed if search.raised(check))
    computes = 2 * raised <= sum(check.points for check in search.failed)
    return least, min(most, 1.0) if computes and not rest else 1.0


def _most(search: Search) -> float:
    """The most that an answer without a named mistake loses; a part's if some is right."""
    right = [c for c in search.passed if not all(outcome.failure for outcome in c.outcomes)]
    weights = [sum(check.points for check in part) for part in (right, search.failed)]
    return KINDS["part"][1] if weights[0] >= A_PART * sum(weights) else 1.0


def _mildest_kind(search: Search) -> str:
    """Return the kind of fault of an answer without a named mistake: "case" if only half
    precision, refusals or unchanged inputs fail, "part" if the values are right, else ""."""
    failed = search.failed
    if all(
        _is_half(check)
        or check.difference.key == "not raised"
        or (check.difference.kind == "changed" and are_values_right([check], search.oracle))
        for check in failed
    ):
        return "case"
    return "part" if all(check.difference.kind in ("grad", "state") for check in failed) else ""


def _is_half(check: CheckResult) -> bool:
    """Whether a check is about numbers in half precision, and the answer returns some."""
    tensors = [t for call in check.check.calls for _, step in call.steps for t in step.values()]
    dtypes = {check.failure_call.dtype, *(getattr(tensor, "dtype", None) for tensor in tensors)}
    return check.difference.kind == "values" and bool(dtypes & {torch.float16, torch.bfloat16})


def _failure(check: CheckResult) -> Failure | None:
    """Return the error that the answer raised in a check."""
    return next((outcome.failure for outcome in check.outcomes if outcome.failure), None)
