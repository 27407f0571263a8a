"""What an error of Python or torch says of its cause. Right or silent: a guess that is wrong
costs a learner more than none."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches

from labkit.course import cells
from labkit.course.lang import said, tr
from labkit.course.syllabus import Exercise
from labkit.sandbox.inside.call import Failure

Rule = Callable[[re.Match[str], Failure, Exercise, str], str]
LONGEST, FEW = 60, 5  # of a learner's names: characters, and how many
VERSION = ".".join(map(str, sys.version_info[:2]))
REDUCTIONS = {"mean", "sum", "var", "std", "norm", "amax", "amin", "prod", "max", "min"}


def advice_on(failure: Failure, exercise: Exercise, cell: str) -> str:
    """A sentence on the cause of an error, or "" where its words leave more than one.

    cell    the learner's code; the failure's line counts within it
    """
    for pattern, sentence in RULES:
        match = re.search(pattern, failure.text)
        if match:
            return (
                tr(sentence)
                if isinstance(sentence, str)
                else sentence(match, failure, exercise, cell)
            )
    return ""


def _not_written(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    if match[1] == exercise.id:
        return tr("a `raise NotImplementedError` line of the stub is still there: delete it")
    return tr("exercise {id}, which this one uses, is still empty: write it first", id=match[1])


def _not_defined(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    name, own = match[1], cells.defined_names(cells.tidied(cell))
    if name in exercise.symbols:
        shown = [each if len(each) <= LONGEST else f"{each[: LONGEST - 1]}…" for each in own]
        more = tr(" and more") if len(own) > FEW else ""
        instead = (
            tr(
                ", and this cell defines {names}{more}",
                names=tr(", ").join(shown[:FEW]),
                more=more,
            )
            if own
            else ""
        )
        return tr("the exercise needs `{name}`{instead}", name=name, instead=instead)
    tree = cells.parsed(cells.tidied(cell))
    known = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)] if tree else []
    known += [n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)] if tree else []
    if tree and name in _names_of_self(tree):
        return tr("`self.` is missing: it has to be `self.{name}`", name=name)
    near = get_close_matches(name, set(known) - {name}, n=1, cutoff=0.8)
    slip = tr("is it a slip for `{near}`? Or ", near=near[0]) if near else ""
    return tr(
        "`{name}` is used and not defined: {slip}does it come from another cell? "
        "Imports, definitions and assignments come along from there, results of "
        "your exercises do not",
        name=name,
        slip=slip,
    )


def _names_of_self(tree: ast.AST) -> set[str]:
    """Attributes of `self`, and methods."""
    found = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def forgotten_self(cell: str) -> str:
    """A part that `__init__` makes and leaves in a local name, as a sentence; "" if none."""
    tree = cells.parsed(cells.tidied(cell))
    for method in ast.walk(tree) if tree else ():
        if not isinstance(method, ast.FunctionDef) or method.name != "__init__":
            continue
        used = [n.id for n in ast.walk(method) if isinstance(n, ast.Name)]
        for node in method.body:
            made = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            name = node.targets[0] if made else None
            if isinstance(name, ast.Name) and used.count(name.id) == 1:
                return tr(
                    "`self.` is missing: `{name}` is made in `__init__` and is gone when that "
                    "ends",
                    name=name.id,
                )
    return ""


def _argument(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    """Of the learner's own function, called as the contract says; torch's own stay silent."""
    called, symbol = match[1], match[1].split(".")[0]
    if symbol not in exercise.symbols or failure.line is not None:
        return ""
    if "positional" in match[0] or "multiple" in match[0]:
        method = called.split(".")[-1]
        if "." in called and _first_argument(cell, method) != "self":
            return tr("`self` is missing as the first argument of `{method}`", method=method)
    return tr(
        "the arguments of `{called}` are not those of the stub: keep their names and order",
        called=called,
    )


def _first_argument(cell: str, method: str) -> str | None:
    tree = cells.parsed(cells.tidied(cell))
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.FunctionDef) and node.name == method:
            return node.args.args[0].arg if node.args.args else None
    return None


def _attribute(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    owner, name = match[1], match[2]
    if owner == "NoneType" and re.search(rf"[\w\])]\[[^\]]*\]\.{name}\b", cell):
        return ""  # of a row's or dict's item: it may not have been set yet
    if owner == "NoneType":
        return tr(
            "what `.{name}` is asked of is None in this call: an optional argument "
            "that was not given, or a function without `return`",
            name=name,
        )
    if owner in exercise.symbols:
        return tr(
            "`self.{name}` is read, and nothing of that name was stored on `self` before",
            name=name,
        )
    return ""


def _sizes(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    """Only where the cell has a reduction along an axis that drops it."""
    tree = cells.parsed(cells.tidied(cell))
    lines = cell.splitlines()
    here = lines[failure.line - 1] if failure.line and failure.line <= len(lines) else "@"
    if tree is None or "@" in here or "matmul" in here:
        return ""  # of no line of this cell, nothing is known
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _drops_an_axis(node) and _meets(node, failure, lines):
            return tr(
                "two shapes do not line up: line {lineno} reduces an axis without "
                "`keepdim=True`, so that the axis is gone",
                lineno=node.lineno,
            )
    return ""


def _meets(node: ast.Call, failure: Failure, lines: list[str]) -> bool:
    """Whether what a call gives is in the line that failed."""
    line = failure.line or 0
    name = lines[node.lineno - 1].partition("=")[0].strip()
    before = node.lineno < line <= len(lines)
    return node.lineno == line or (before and bool(name) and name in lines[line - 1])


def _drops_an_axis(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    given = {keyword.arg for keyword in node.keywords}
    if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "self":
        return False  # a part of the learner's own, perhaps a norm
    return name in REDUCTIONS and bool(node.args or "dim" in given) and "keepdim" not in given


def _product(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    return tr(
        "rows of {given} numbers meet a matrix that takes rows of {taken}",
        given=match[2],
        taken=match[3],
    )


def _no_module(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    return tr(
        "`{name}` is neither a package nor a file in grading: only the notebook is read, and "
        "`%%writefile` writes nothing. Put its code into this cell",
        name=match[1],
    )


def _no_name(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    if match[2] not in sys.stdlib_module_names:
        return ""
    return tr("Python {version} checks this, and has no `{name}` in `{module}`",
              version=VERSION, name=match[1], module=match[2])  # fmt: skip


def _syntax(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    """A merge that was not finished; what only a newer Python reads."""
    if failure.kind not in ("SyntaxError", "IndentationError"):
        return ""
    if re.search(r"^(<{7}|>{7})( |$)", cell, re.MULTILINE):
        return tr("a git merge was not finished: lines of <<<<<<< are in the cell")
    if sys.version_info < (3, 12) and re.search(NEWER, cell, re.MULTILINE):
        return tr("Python 3.12 reads this, but {version} checks it: write it otherwise",
                  version=VERSION)  # fmt: skip
    return ""


def _inverted(match: re.Match[str], failure: Failure, exercise: Exercise, cell: str) -> str:
    if "~" in cell:
        return tr("`~` is for bool masks: this tensor holds numbers")
    return tr("a mask of numbers arrives where a bool mask is expected")


# Type parameters, the statement `type X = ...`, an f-string with its own quotes inside
NEWER = r"""^ *(def|class) +\w+\[|^ *type +\w+.*=|\bf(["']).*\{[^}]*\2"""
# (what the error's text holds, a sentence that is then always so, or who looks closer)
RULES: tuple[tuple[str, str | Rule], ...] = (
    (r"^Exercise (\d+\.\d+):", _not_written),
    (r"^(?:name ')?(\w+)'? is not defined", _not_defined),
    (
        r"_forward_unimplemented|missing the required \"forward\"",
        said("the class has no method `forward` of its own"),
    ),
    (r"([\w.]+)\(\) got an unexpected keyword argument", _argument),
    (r"([\w.]+)\(\) got multiple values for argument", _argument),
    (r"([\w.]+)\(\) missing \d+ required positional argument", _argument),
    (r"([\w.]+)\(\) takes .*positional argument", _argument),
    (
        r"before Module.__init__\(\) call",
        said("`super().__init__()` does not come first in `__init__`"),
    ),
    (r"cannot import name '(\w+)' from '(\w+)'", _no_name),
    (r"No module named '([\w.]+)'", _no_module),
    (
        r"CUDA|NVIDIA",
        said("there is no GPU in grading: take the device from a tensor, `x.device`"),
    ),
    (r"'(\w+)' object has no attribute '(\w+)'", _attribute),
    (
        r"'NoneType' object is not|for .*'NoneType'",
        said(
            "a value is None in this call: an optional argument that was not given, or a "
            "function without `return`"
        ),
    ),
    (
        r"same dtype|same scalar type",
        said("two tensors of different dtypes meet: cast one of them with `.to(...)`"),
    ),
    (
        r"view size is not compatible",
        said(
            "`.view` cannot read this tensor in another shape, since it does not lie in order "
            "in memory: `.reshape` copies where it must"
        ),
    ),
    (
        r"a leaf Variable that requires grad",
        said("a tensor that was handed in is changed in place"),
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
    (r"operator\.invert|bitwise_not", _inverted),
    (
        r"can be converted to Python scalars",
        said(
            "a function for a single number (of `math`, `float`, `int`) gets a whole tensor: "
            "torch's own functions take tensors"
        ),
    ),
    (
        r"Can't call numpy\(\)",
        said("numpy cuts the gradient off: torch has the same functions for tensors"),
    ),
    (
        r"index -100 is out of bounds",
        said(
            "-100 is used as an index: put a token in its place before, and drop what it gave "
            "after"
        ),
    ),
    (
        r"does not require grad and does not have a grad_fn",
        said(
            "no weight has a share in what `backward` is called on: it was computed under "
            "`no_grad`, or of detached or plain numbers"
        ),
    ),
    (
        r"numbers, \d+ are allowed here",
        said("this tensor is larger than the exercise allows: compute it a block at a time"),
    ),
    (r"maximum recursion depth", said("the code calls itself without end")),
    (r"must match the size", _sizes),
    (r"shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", _product),
    (r"expect|invalid|indent|f-string|unmatched", _syntax),
)
