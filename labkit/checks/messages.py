"""Every sentence that a report on an exercise can contain, and the report itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from labkit.course.lang import said, tr
from labkit.course.report import Report, Status
from labkit.sandbox.inside.call import Failure

Row = tuple[str, str]
# not errors of the code: the reasons why it was stopped
LIMITS = ("NoAnswer", "TimeLimit", "OutputLimit")
MOST_LOOKS = 4
MOST_KEYS = 8  # keys of a dict that are listed
FOLD = 130  # characters

# The texts for differences, by the key of a Difference; a second sentence is for hidden checks,
# where no
# number of the reference may be read.
LOOKS: dict[str, tuple[str, ...]] = {
    "odd": (said("what came back cannot be compared"),),
    "no return": (said("the call did not return"),),
    "raised": ("{failure}",),
    "not raised": (said("{kind} was expected, nothing was raised"),),
    "raised other": (said("{kind} was expected; {failure}"),),
    "unmentioned": (said("the message of the error does not contain {text!r}"),),
    "missing name": (said("there is no parameter {missing}{more}"),),
    "extra name": (
        said("there is a parameter too many: {extra} (if it is a buffer: `persistent=False`)"),
    ),
    "name shape": (said("parameter {name} has shape {answer} instead of {shape}"),),
    "not the weights": (said("{name} does not hold the weights that were loaded"),),
    "no tensor": (said("{where}a tensor was expected, not {answer}"),),
    "no values": (said("{where}{answer} came back; the number of values expected is {count}"),),
    "no entry": (said("{where}there is no {missing}{more}"),),
    "extra entry": (said("{where}there is a {extra} too many"),),
    "no dict": (said("{where}a dict with {expected} was expected, not {answer}"),),
    "number": (said("{where}{answer:.5g} instead of {expected:.5g}"), "{where}{answer:.5g}"),
    "value": (said("{where}{answer} instead of {expected}"), said("{where}{answer} is wrong")),
    "shape": (said("{where}the shape is {answer} instead of {wanted}"),),
    "dtype": (said("{where}the dtype is {answer} instead of {wanted}"),),
    "nan": (said("{where}{bad} of {all} entries are {entry}, first at {place}"),),
    "changed": (said("the call changed its input {new} in place"),),
    "values": (
        said("{where}values differ in {share}, first at {at}: {answer} instead of {expected}"),
        said("{where}values differ in {share}, first at {at}"),
    ),
    "scalar": (
        said("{where}the value is {answer} instead of {expected}"),
        said("{where}the value differs"),
    ),
    "no state": (said("afterwards there is no {name} of its old shape"),),
    "state": (said("after the call, {name} differs in {percent} of its entries"),),
    "scalar state": (
        said("after the call, {name} is {answer} instead of {expected}"),
        said("after the call, {name} is {answer}"),
    ),
    "extra gradient": (said("there is a {extra} too many"),),
    "no grad": (said("no gradient reaches {name}"),),
    "zero grad": (said("no gradient reaches {name}: it is zero everywhere"),),
    "grad": (said("the gradient of {name} differs in {percent} of its entries"),),
    "drawn": (said("{drawn} tokens of 0 to {last} came out"),),
    "forbidden": (said("token {token} came out, which must not be drawn"),),
    "frequency": (
        said("token {token} was drawn {times} times in {draws}, not about {expected:.0f}"),
        said("token {token} was drawn {times} times in {draws}"),
    ),
}
ROUNDED = said("in half precision some last places are not Qwen3's: that costs nothing")


def look(key: str, data: Mapping[str, Any]) -> tuple[str, str]:
    """Return how two outcomes differ, and the same without numbers of the reference."""
    shown, answer, expected = dict(data), data.get("answer"), data.get("expected")
    if "failure" in data:
        shown["failure"] = error_text(data["failure"])
    if key == "missing name":
        extra = data["extra"]
        shown["more"] = tr("; it has {extra}", extra=tr(", ").join(extra)) if extra else ""
    if key in ("no tensor", "no values"):
        shown["answer"] = kind_of(answer, is_whole=not data["where"])
    if key == "no dict" and isinstance(answer, dict) and len(expected) > MOST_KEYS:
        missing, extra = name_faults(expected, answer)
        key = "no entry" if missing else "extra entry"
        more = tr("; it has {extra}", extra=extra[0]) if extra else ""
        shown |= {"missing": (missing or [""])[0], "extra": (extra or [""])[0], "more": more}
    elif key == "no dict":
        shown["expected"] = tr(", ").join(expected)
        names = tr(", ").join(answer) or tr("nothing") if isinstance(answer, dict) else ""
        shown["answer"] = tr("one with {names}", names=names) if names else kind_of(answer)
    if key == "value":
        shown["answer"], shown["expected"] = values_apart(answer, expected, data["where"])
    if "off" in data:
        off = data["off"]
        shown["percent"] = percent(off)
        every = tr("all entries")
        shown["share"] = every if off.all() else tr("{off} of the entries", off=percent(off))
    if isinstance(answer, Tensor) and key in ("values", "scalar", "scalar state"):
        shown["answer"] = number(answer)
        shown["expected"] = number(expected, shown["answer"])
    texts = [tr(text).format(**shown) for text in LOOKS[key]]
    return texts[0], texts[-1]


def step(number: int, method: str = "", inputs: Mapping[str, Any] | None = None) -> str:
    """Return words for a step of a call: "step 3, gather(sequence=1): "."""
    if not method:
        return tr("step {step}: ", step=number)
    given = [f"{name}={v!r}" for name, v in (inputs or {}).items() if type(v) in (int, str)]
    done = method if method.startswith(".") else f"{method.lstrip('?')}({', '.join(given)})"
    return tr("step {step}, {done}: ", step=number, done=done)


def place(key: int | str, names: Sequence[str] = ()) -> str:
    """Return words for the place of a value in a list or dict: "cos: "."""
    if isinstance(key, int):
        key = names[key] if names else tr("value {n}", n=key + 1)
    return key + tr(": ")


def kind_of(value: Any, is_whole: bool = True) -> str:
    """Describe a value to a learner who returned the wrong type, as a whole or in a part."""
    if value is None:
        hint = tr("None (is a return missing, or a print in its place?)")
        return hint if is_whole else "None"
    if isinstance(value, Tensor):
        return tr("a tensor of shape {shape}", shape=tuple(value.shape))
    if isinstance(value, dict) and len(value) == 1:
        key, item = next(iter(value.items()))
        if key.startswith("a") and " " in key:
            return f"{key} {str(item)[:60]}"
    if value in ("nan", "inf", "-inf"):  # a number, as a call gives it
        return value
    if isinstance(value, (bool, int, float, str)):
        return f"{type(value).__name__} {str(value)[:40]!r}"
    if isinstance(value, (list, tuple)):
        if len(value) == 1 and is_whole:
            return tr("a list or tuple of one value (does the return line end with a comma?)")
        return tr("a list or tuple of {n} values", n=len(value))
    return f"a {type(value).__name__}"


def name_faults(expected: Iterable[str], answer: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names that are missing, and the superfluous ones."""
    missing = [name for name in expected if name not in answer]
    return missing, [name for name in answer if name not in expected]


def values_apart(answer: Any, expected: Any, where: str = "") -> tuple[str, str]:
    if type(answer) is type(expected) is str:
        differs = [a != b for a, b in zip(answer, expected, strict=False)] + [True]
        begin = max(0, differs.index(True) - 24)
        cut = lambda text: ("…" if begin else "") + repr(text[begin : begin + 60])  # noqa: E731
        return cut(answer), cut(expected)
    if type(answer) is type(expected) and isinstance(answer, (bool, int)):
        return str(answer)[:60], str(expected)[:60]
    return kind_of(answer, not where), kind_of(expected, is_whole=False)


def percent(off: Tensor) -> str:
    share = 100 * float(off.double().mean())
    return f"{share:.0f}%" if share >= 1 else tr("under 1%")


def number(entry: Tensor, other: str | None = None) -> str:
    """A number with five digits, or as many as it needs to look different from the other."""
    value = entry.item()
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.5g}"
    return f"{value:.9g}" if text == other else text


def error_text(failure: Failure) -> str:
    """Return an error as a learner reads it."""
    if failure.text.startswith("Error(s) in loading state_dict"):
        return _state_text(failure.text)
    where = tr(" (line {line} of your cell)", line=failure.line) if failure.line else ""
    if failure.rank is not None and failure.kind not in LIMITS:
        where += tr(", on rank {rank}", rank=failure.rank)
    raised = "" if failure.kind in LIMITS else tr("it raised {kind}: ", kind=failure.kind)
    raised = raised if failure.text else raised.rstrip(" :：")
    text = re.sub(r" \((/|\w:\\)[^()]*\)", "", failure.text)  # the path of an ImportError
    return f"{raised}{text}{where}"


def _state_text(text: str) -> str:
    """Return the first reason why weights cannot be loaded, in a few words."""
    sizes = re.search(r"mismatch for (\S+): .*?Size\((\[.*?\])\).*?Size\((\[.*?\])\)", text)
    missing = re.search(r'Missing key\(s\) in state_dict: "([^"]+)"', text)
    extra = re.search(r'Unexpected key\(s\) in state_dict: "([^"]+)"', text)
    begin = tr("the weights do not fit: ")
    if missing and extra:
        names = {"extra": extra[1], "missing": missing[1]}
        return tr("{said}there is a {missing} and no {extra}", said=begin, **names)
    if missing:
        more = said(
            "{said}there is a {missing} too many; if it is a buffer: `persistent=False`"
        )
        return tr(more, said=begin, missing=missing[1])
    if extra:
        return tr("{said}there is no {extra}", said=begin, extra=extra[1])
    if sizes:
        wanted, got = (f"({shape[1:-1]})" for shape in sizes.groups()[1:])
        shapes = {"sizes": sizes[1], "got": got, "wanted": wanted}
        return tr("{said}{sizes} has shape {got} instead of {wanted}", said=begin, **shapes)
    return begin.removesuffix(tr(": "))


def learner_report(result: Any, diagnosis: Any, next_step: str = "") -> Report:
    """Return the report under a check cell: the first fault, why, then what is right."""
    heading = result.exercise.heading
    if result.broken:
        look = ("look", tr("the check itself failed, not you: {fault}", fault=result.broken))
        return Report(heading, Status.NOT_CHECKED, [look, ("next", tr("please report this"))])
    if result.interrupted:
        rows = [("look", tr("the check was interrupted"))]
        rows.append(("next", tr("look for a loop that never ends")))
        return Report(heading, Status.NOT_CHECKED, rows)
    failure = result.first_failure
    titles = dict.fromkeys(check.title for check in result.checks if check.passed)
    facts = [*titles, *(failure.difference.right if failure else ())]
    rows = [("ok", fold_facts(facts, result))] if facts else []
    if failure is None:
        points = result.exercise.points
        verdict = tr("passed, {points} of {points} points", points=points) if points else ""
        if any(check.rounded_otherwise for check in result.checks):
            rows.append(("note", tr(ROUNDED)))
        return Report(heading, Status.PASSED, [*rows, ("next", next_step)], verdict)
    rows = [*case_rows(result, diagnosis, [failure], "look"), *rows]
    return Report(heading, Status.NOT_YET, [*rows, ("next", next_step)])


def graded_report(result: Any, diagnosis: Any, intake: str = "") -> Report:
    """Return the report in a graded notebook: every check, but no number of the reference."""
    earned = {"score": result.score, "points": result.exercise.points}
    verdict = tr("{score:g} of {points} points", **earned)
    rows = [("look", intake)] if intake else []
    if result.broken:
        rows.append(("look", tr("the check itself failed: a person has to look at this")))
    cases = distinct_cases(result)
    rows += case_rows(result, diagnosis, cases[:MOST_LOOKS], "redacted")
    if (rest := len(cases) - MOST_LOOKS) > 0:
        rows.append(("look", tr("and {rest} more", rest=rest)))
    failed = {check.title for check in result.failed}
    passed = dict.fromkeys(c.title for c in result.checks if c.passed and c.title not in failed)
    rows += [("ok", " | ".join(passed))] if passed else []
    status = Status.PASSED if result.passed else Status.NOT_YET
    return Report(result.exercise.heading, status, rows, verdict)


def case_rows(result: Any, diagnosis: Any, cases: Sequence[Any], look: str) -> list[Row]:
    """Return rows on these failed checks and on those that are explained, each with its
    explanation.

    look     which words of a Difference are shown: "look", or "redacted"
    """
    under: dict[int, list[Row]] = {id(case): [] for case in cases}
    for case, label, text in diagnosis.findings:
        under.setdefault(id(case or result.first_failure), []).append((label, text))
    rows: list[Row] = []
    for case in result.failed:
        if id(case) in under:
            text = add_title(case.title, getattr(case.difference, look))
            rows += [("look", text), *under[id(case)]]
    return rows


def distinct_cases(result: Any) -> list[Any]:
    """Return the failed checks without those that repeat a title or a text."""
    cases, seen = [], set[str]()
    for check in result.failed:
        words = {check.title, check.difference.redacted}
        cases += [] if seen & words else [check]
        seen |= words
    return cases


def add_title(title: str, text: str) -> str:
    """Return the fault with its check's title; "values: values differ" would repeat a word."""
    whole = tr("{title}: {look}", title=title, look=text)
    return text if text.startswith(f"{title} ") else whole


def fold_facts(facts: list[str], result: Any) -> str:
    """Return the list of what is right in two lines at most; a longer one becomes a count."""
    text = " | ".join(facts)
    if len(text) <= FOLD:
        return text
    passed = sum(check.passed for check in result.checks)
    return tr("{passed} of {count} checks", passed=passed, count=len(result.checks))
