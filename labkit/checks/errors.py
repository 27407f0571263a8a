"""Advice on the cause of an error of Python or torch. If in doubt there is none: a wrong guess
costs a learner more than no advice."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from labkit.checks.reasons.slips import nodes_of, quoted
from labkit.course import cells
from labkit.course.lang import said, tr
from labkit.course.syllabus import Exercise
from labkit.sandbox.inside.call import Failure

MOST_NAMES = 120  # characters of a learner's names
MODULES = {name: f"import {name}" for name in ("math", "re", "torch", "itertools")}
MODULES |= {"np": "import numpy as np", "nn": "from torch import nn"}
REDUCTIONS = {"mean", "sum", "var", "std", "norm", "amax", "amin", "prod", "max", "min"}


@dataclass(frozen=True)
class Case:
    """An error, and the learner's code; the failure's line counts within it."""

    match: re.Match[str]  # the match of the rule
    failure: Failure
    exercise: Exercise
    cell: str

    @property
    def nodes(self) -> list[ast.AST]:
        """Return the nodes of the code; [] if it is not Python."""
        return nodes_of(self.cell)

    def line(self, number: int | None) -> str:
        """Return a line of the cell, "" if there is none with this number."""
        lines = self.cell.splitlines()
        return lines[number - 1] if number and number <= len(lines) else ""


def advice_on(failure: Failure, exercise: Exercise, cell: str) -> str:
    """A sentence on the cause of an error, or "" if its words allow for several.

    cell    the learner's code; the failure's line counts within it
    """
    text = f"{failure.kind}: {failure.text}"
    for pattern, advice in RULES:
        if match := re.search(pattern, text):
            if isinstance(advice, str):
                return tr(advice, **match.groupdict())
            return advice(Case(match, failure, exercise, cell))
    return ""


def _not_written(case: Case) -> str:
    if case.match[1] == case.exercise.id:
        return tr("a `raise NotImplementedError` line of the stub is still there: delete it")
    unwritten = said("exercise {id}, which this one uses, is still empty: write it first")
    return tr(unwritten, id=case.match[1])


def _not_defined(case: Case) -> str:
    name, nodes = case.match[1], case.nodes
    if name in case.exercise.symbols:
        names = tr(", ").join(cells.defined_names(cells.without_tools(case.cell)))[:MOST_NAMES]
        instead = tr(", and this cell defines {names}", names=names) if names else ""
        return tr("the exercise needs `{name}`{instead}", name=name, instead=instead)
    methods = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    if name in methods or name in {node.attr for node in nodes if _is_of_self(node)}:
        return tr("`self.` is missing: it has to be `self.{name}`", name=name)
    known = {node.id for node in nodes if isinstance(node, ast.Name)}
    known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    if name in MODULES:
        return tr("`{line}` is missing in this cell", line=MODULES[name])
    near = get_close_matches(name, sorted(known - {name}), n=1, cutoff=0.75)
    slip = tr("is it a slip for `{near}`? Or ", near=near[0]) if near else ""
    undefined = said(
        "`{name}` is used and not defined: {slip}does it come from another cell? "
        "Imports, definitions and assignments come along from there, results of "
        "your exercises do not"
    )
    return tr(undefined, name=name, slip=slip)


def _is_of_self(node: ast.AST) -> bool:
    owner = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id == "self"


def _argument(case: Case) -> str:
    """Explain arguments that do not fit a learner's function; return "" for torch's."""
    called = case.match[1]
    symbol, *method = called.split(".")
    if symbol not in case.exercise.symbols or case.failure.line is not None:
        return ""
    if method and "keyword" not in case.match[0]:
        defined = [node for node in case.nodes if isinstance(node, ast.FunctionDef)]
        first = {node.name: [x.arg for x in node.args.args][:1] for node in defined}
        if first.get(method[-1]) != ["self"]:
            missing = said("`self` is missing as the first argument of `{method}`")
            return tr(missing, method=method[-1])
    return tr(
        "the arguments of `{called}` are not those of the stub: keep their names and order",
        called=called,
    )


def _attribute(case: Case) -> str:
    owner, name = case.match[1], case.match[2]
    if owner == "NoneType" and re.search(rf"[\w\])]\[[^\]]*\]\.{name}\b", case.cell):
        return ""  # an item of a list or dict may not have been set yet
    if owner == "NoneType":
        return tr(
            "what `.{name}` is asked of is None in this call: an optional argument "
            "that was not given, or a function without `return`",
            name=name,
        )
    stored = said("`self.{name}` is read, and nothing of that name was stored on `self` before")
    return tr(stored, name=name) if owner in case.exercise.symbols else ""


def _sizes(case: Case) -> str:
    """Explain sizes that do not fit, if the cell has a reduction that drops an axis."""
    wrong = case.line(case.failure.line)
    if not wrong or "@" in wrong or "matmul" in wrong:
        return ""  # the error is in no line of this cell
    for node in case.nodes:
        if not _drops_an_axis(node):
            continue
        name = case.line(node.lineno).partition("=")[0].strip()  # the name that gets the result
        is_used = node.lineno < case.failure.line and name and name in wrong
        if node.lineno == case.failure.line or is_used:
            return tr(
                "two shapes do not line up: line {lineno} reduces an axis without "
                "`keepdim=True`, so that the axis is gone",
                lineno=node.lineno,
            )
    return ""


def _drops_an_axis(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    given = {keyword.arg for keyword in node.keywords}
    is_reduction = node.func.attr in REDUCTIONS and bool(node.args or "dim" in given)
    return is_reduction and "keepdim" not in given and not _is_of_self(node.func)


def _syntax(case: Case) -> str:
    is_merged = re.search(r"^(<{7}|>{7})( |$)", case.cell, re.MULTILINE)
    if case.failure.kind in ("SyntaxError", "IndentationError") and is_merged:
        return tr("a git merge was not finished: lines of <<<<<<< are in the cell")
    return cells.why_no_python(case.cell)


def _divided(case: Case) -> str:
    """Explain a quotient that is used as a whole number."""
    divided = [n for n in case.nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
    nearest = [node for node in divided if node.lineno == case.failure.line] or divided
    if not nearest:
        return ""
    whole = said("`{quotient}` is a float in Python: `//` divides whole numbers")
    return tr(whole, quotient=quoted(nearest[0]))


def _none(case: Case) -> str:
    if ".get(" in case.cell:
        return tr("a value is None in this call: `.get` found nothing, or nothing was given")
    return tr(
        "a value is None in this call: an optional argument that was not given, or a "
        "function without `return`"
    )


# (pattern of the error's text, a sentence with the groups of the match, or a function)
RULES: tuple[tuple[str, str | Callable[[Case], str]], ...] = (
    (r"^\w+: Exercise (\d+\.\d+):", _not_written),
    (r"^\w+: (?:name ')?(\w+)'? is not defined", _not_defined),
    (
        r"_forward_unimplemented|missing the required \"forward\"",
        said("the class has no method `forward` of its own"),
    ),
    (r"([\w.]+)\(\) (got an unexpected keyword|got multiple values for) argument", _argument),
    (r"([\w.]+)\(\) (missing \d+ required |takes .*)positional argument", _argument),
    (
        r"before Module.__init__\(\) call",
        said("`super().__init__()` does not come first in `__init__`"),
    ),
    (
        r"No module named '(?P<name>[\w.]+)'",
        said(
            "`{name}` is neither a package nor a file in grading: only the notebook is read, "
            "and `%%writefile` writes nothing. Put its code into this cell"
        ),
    ),
    (
        r"^Deadlock: no rank can go on",
        said(
            "ranks wait for each other: every rank has to call what the whole group does, in "
            "the same order and whatever its own numbers are; and not all can send first"
        ),
    ),
    (r"CUDA|NVIDIA", said("grading has no GPU: take the device from a tensor, `x.device`")),
    (r"'(\w+)' object has no attribute '(\w+)'", _attribute),
    (r"'NoneType' object is not|for .*'NoneType'", _none),
    (r"'int' object is not iterable", said("in this call a single number is used as a list")),
    (
        r"codec can't decode",
        said("bytes that are not valid UTF-8 raise an error: see `errors=` of `.decode`"),
    ),
    (
        r"selected index k out of range",
        said("`topk` is asked for more entries than there are: take the smaller number"),
    ),
    (r"same dtype|same scalar type", said("two dtypes meet: cast one tensor with `.to(...)`")),
    (
        r"view size is not compatible",
        said("this tensor is not contiguous: `.view` cannot reshape it, `.reshape` can"),
    ),
    (
        r"a leaf Variable that requires grad",
        said("a tensor that was passed in is changed in place"),
    ),
    (
        r"modified by an inplace operation",
        said("a tensor that the gradient still needs is changed in place"),
    ),
    (
        r"Boolean value of Tensor",
        said(
            "a tensor stands where Python wants one truth value (`if`, `and`, `or`, `not`): "
            "ask `is None`, or use `&`, `|`, `~`, which go entry by entry"
        ),
    ),
    (
        r"operator\.invert|bitwise_not",
        said(
            "a tensor of numbers is used where a bool mask is needed: `~` inverts bools alone"
        ),
    ),
    (
        r"slice indices must be integers|cannot be interpreted as an integer|not float|"
        r"must be (tuple of )?ints?\b.* float|type float",
        _divided,
    ),
    (
        r"exceptions must derive from BaseException",
        said("a string cannot be raised: raise an error with it, `ValueError(...)`"),
    ),
    (
        r"unsupported operand .*'list'|multiply sequence by non-int|'list' object cannot be",
        said("a list is used where a number or a tensor is needed"),
    ),
    (
        r"can be converted to Python scalars",
        said("`math`, `float` and `int` take single numbers: use torch's own functions here"),
    ),
    (
        r"Can't call numpy\(\)",
        said("numpy cuts off the gradient: torch has the same functions for tensors"),
    ),
    (
        r"index -100 is out of bounds",
        said("-100 is used as an index: replace it by a token, and ignore the result there"),
    ),
    (
        r"does not require grad and does not have a grad_fn",
        said(
            "`backward` reaches no weight: the loss was computed under `no_grad`, or detached"
        ),
    ),
    (
        r"numbers, \d+ are allowed here",
        said("this tensor is larger than the exercise allows: compute it a block at a time"),
    ),
    (
        r"unhashable type: 'list'",
        said("a list cannot be a key of a dict or in a set: make it a `tuple(...)`"),
    ),
    (
        r"(?P<name>min|max)\(\) .*empty",
        said(
            "`{name}` gets nothing to choose from in this call: ask first if anything is left"
        ),
    ),
    (r"maximum recursion depth", said("the code calls itself without end")),
    (r"must match the size", _sizes),
    (
        r"shapes cannot be multiplied \(\d+x(?P<given>\d+) and (?P<taken>\d+)x\d+\)",
        said("rows of {given} numbers meet a matrix that takes rows of {taken}"),
    ),
    (
        r"^KeyError: (?P<key>.+)",
        said("the dict has no {key}: it was never put in, or what made this key is wrong"),
    ),
    (r"expect|invalid|indent|f-string|unmatched", _syntax),
)
