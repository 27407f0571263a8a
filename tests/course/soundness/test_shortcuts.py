"""Shortcuts that are right for most inputs, inserted into every reference: the checks refuse
each of them, at home and in grading.

A shortcut is a line before an answer: an argument that counts only if the batch has several
texts, the first row's values for all rows, and the like. A shortcut that the docstring allows
is listed in ALIKE, with the reason.
"""

import ast
import re

import pytest

from labkit.author.reference import reference_block
from labkit.checks.runner import run_check
from labkit.course.syllabus import LABS
from labkit.sandbox.inside.perform import perform
from tests.course.soundness.test_soundness import checks_of, name_of, names_with, oracle_of

MASKS = {  # a mask that is used only sometimes; {later} is the argument that continues a text
    "several texts": "if {x} is not None and {x}.shape[0] == 1: {x} = None",
    "first not whole": "if {x} is not None and bool({x}[0].all()): {x} = None",
    "last not whole": "if {x} is not None and bool({x}[-1].all()): {x} = None",
    "several queries": "if {x} is not None and {x}.shape[-2:-1] == (1,): {x} = None",
    "first for all": "if {x} is not None: {x} = {x}[:1].expand_as({x})",
    "first piece": "if {x} is not None and {later} is not None: {x} = None",
}
PADDING = {name: line for name, line in MASKS.items() if name != "several queries"}
STATES = {name: MASKS[name] for name in ("several texts", "first for all")}
PAIR = {"first for all": "if {x} is not None: {x} = [t[:1].expand_as(t) for t in {x}]"}
OF_NAME = {
    "mask": MASKS, "attention_mask": PADDING, "initial_state": STATES, "ref_log_probs": STATES,
    "texts": {"each once": "{x} = list(dict.fromkeys({x}))"},
    "self": {"training": "if not self.training: return None"},
}  # fmt: skip
OF_TYPE = {
    "Tensor": {"first for all": "{x} = {x}[:1].expand_as({x})"},
    "tuple[Tensor, Tensor] | None": PAIR,
    "float | None": {"zero is none": "{x} = {x} or None"},
}
LATER = ("state", "cache")
# Edits made wherever they apply: name, and the changed code
EDITS = {
    "first group": ("param_groups:", "param_groups[:1]:"),
    "first layer": ("lengths[sequence][layer_idx]\n", "lengths[sequence][0]\n"),
    "first rewards": ("groups != groups[:, :1]", "groups != groups[:1, :1]"),
    "first text": ("(largest, scores.amax(dim=-1", "(largest, scores[:1].amax(dim=-1"),
    "0 is no token": ('.get(number, "")', '.get(number, "") if number else ""'),
    "ASCII": ('token.encode("utf-8")', 'token.encode("ascii", "ignore")'),
}
REFUSED = "0 is refused before"
ALIKE = {
    ("7.2", "top_p", "zero is none"): REFUSED,
    ("7.3", "top_p", "zero is none"): REFUSED,
    ("11.5", "mask", "several texts"): "a pair has two rows",
    ("11.5", "ref_log_probs", "several texts"): "a pair has two rows",
}


def shortcuts(cell):
    """(argument, kind, the cell with the shortcut) of each that can be planted."""
    lines = cell.split("\n")
    for place, line in enumerate(lines):
        if "### BEGIN SOLUTION" in line:
            indent = re.match(" *", line)[0]
            for argument, kind, text in planted(function_at(cell, place + 1), place):
                changed = [*lines[: place + 1], indent + text, *lines[place + 1 :]]
                yield argument, kind, "\n".join(changed)
    for kind, (find, replace) in EDITS.items():
        if find in cell:
            yield "", kind, cell.replace(find, replace)


def function_at(cell, number):
    """The innermost function around a line."""
    found = [n for n in ast.walk(ast.parse(cell)) if isinstance(n, ast.FunctionDef)]
    around = [f for f in found if f.lineno <= number <= f.end_lineno]
    return max(around, key=lambda function: function.lineno)


def planted(function, place):
    """(argument, kind, line) of each shortcut that fits a function, from a line on."""
    arguments = {a.arg: a.annotation and ast.unparse(a.annotation) for a in function.args.args}
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and n.lineno > place}
    later = next((name for name in LATER if name in arguments), None)
    for x, annotation in arguments.items():
        kinds = OF_NAME.get(x, OF_TYPE.get(annotation, {}))
        kinds = PADDING if (x, annotation) == ("mask", "Tensor") else kinds
        if x not in used or (x == "self" and function.name != "forward"):
            continue
        for kind, line in kinds.items():
            if later or "{later}" not in line:
                yield x, kind, line.format(x=x, later=later)


SHORTCUTS = [
    (lab, exercise, *shortcut)
    for lab in LABS
    for exercise in lab.exercises
    for shortcut in shortcuts(reference_block(lab, exercise))
]


def refused(folder, lab, exercise, names):
    def student(call):
        return perform(call, names)

    right = oracle_of(lab).reference
    return not all(
        run_check(c, student, right).passed for c in checks_of(folder, lab, exercise)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lab", "exercise", "argument", "kind", "cell"), SHORTCUTS, ids=name_of
)
def test_a_shortcut_is_refused(lab, exercise, argument, kind, cell):
    names = names_with(lab, exercise, cell)
    alike = (exercise.id, argument, kind) in ALIKE
    for folder in ("visible", "hidden"):
        assert refused(folder, lab, exercise, names) is not alike, folder


def test_every_kind_fits_somewhere():
    found = {(argument, kind) for _, _, argument, kind, _ in SHORTCUTS}
    kinds = {(x, kind) for x, kinds in OF_NAME.items() for kind in kinds}
    assert kinds | {("", kind) for kind in EDITS} <= found
    exercises = {(exercise.id, argument, kind) for _, exercise, argument, kind, _ in SHORTCUTS}
    assert ALIKE.keys() <= exercises
