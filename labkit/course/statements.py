"""The statements at the top level of a cell: the names that each binds, and the names that it
uses. Nothing is run to find that out."""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from labkit.course.cells import parsed, tidied

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*DEFINITIONS, ast.Lambda, *COMPREHENSIONS)
ALWAYS_THERE = {*dir(builtins), "__name__", "__file__", "__doc__", "display", "get_ipython"}
# Packages that are there wherever a learner's code runs
AT_HAND = {"", *sys.stdlib_module_names, "torch", "numpy", "typing_extensions", "tinyllm"}
MAX_CELL = 200_000  # characters; a longer cell is not read as code
STAR = "*"
CACHED = 256  # cells: most of a notebook's are the same for all learners


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement at the top level of a cell.

    source       its lines
    first, last  the numbers of these, counted from 1
    binds        names that it assigns, or whose attribute or item it sets; STAR: `import *`
    calls        names of which it calls a method, for nothing but the effect
    methods      (class, method): what it puts into a class from outside
    """

    node: ast.stmt
    source: str
    first: int
    last: int
    binds: frozenset[str]
    calls: frozenset[str]
    methods: frozenset[tuple[str, str]]

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, IMPORTS)

    @property
    def is_value(self) -> bool:
        """Whether it computes something, now: neither an import nor a definition."""
        return not isinstance(self.node, (*IMPORTS, *DEFINITIONS))

    @property
    def packages(self) -> set[str]:
        """The packages that an import takes something from."""
        if isinstance(self.node, ast.ImportFrom):
            return {"" if self.node.level else (self.node.module or "").split(".")[0]}
        return {alias.name.split(".")[0] for alias in getattr(self.node, "names", [])}

    @cached_property
    def mentions(self) -> set[str]:
        """The global names that it or the code in it looks up, annotations included."""
        try:
            return set(_global_names(symtable.symtable(self.source, "", "exec")))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return {node.id for node in ast.walk(self.node) if isinstance(node, ast.Name)}

    @cached_property
    def uses(self) -> set[str]:
        """The same without those that stand in annotations alone."""
        return self.mentions & {node.id for node in _without_annotations(self.node)}


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    at_top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() if at_top else symbol.is_global():
            yield symbol.get_name()
    for child in table.get_children():
        yield from _global_names(child)


def _without_annotations(node: ast.AST) -> Iterator[ast.Name]:
    new = [node]
    while new:
        node = new.pop()
        if isinstance(node, ast.Name):
            yield node
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns"):
                values = value if isinstance(value, list) else [value]
                new += [each for each in values if isinstance(each, ast.AST)]


@lru_cache(CACHED)
def statements(text: str) -> tuple[Statement, ...]:
    """The statements of a cell in their order; none if it cannot be read as Python."""
    text = tidied(text) if len(text) <= MAX_CELL else ""
    tree, lines = parsed(text), text.split("\n")
    return tuple(_statement(node, lines) for node in tree.body) if tree else ()


def _statement(node: ast.stmt, lines: list[str]) -> Statement:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    last = node.end_lineno or node.lineno
    nodes = list(_scope_nodes(node))
    methods = set(_methods_put(node, nodes))
    return Statement(
        node,
        "\n".join(lines[first - 1 : last]),
        first,
        last,
        frozenset({*_bound(nodes), *(name for name, _ in methods)}),
        frozenset(_called(nodes)),
        frozenset(methods),
    )


def _scope_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement that belong to the scope that it stands in."""
    new = [node]
    while new:
        node = new.pop()
        yield node
        if not isinstance(node, SCOPES):
            new += ast.iter_child_nodes(node)


def _bound(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, DEFINITIONS):
            yield node.name
        elif isinstance(node, IMPORTS):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            yield _root(node)


def _called(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            yield _root(call.func)


def _methods_put(node: ast.stmt, nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """@add_to_class(RMSNorm) above a function, RMSNorm.forward = ..., setattr(RMSNorm, ...)"""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
        yield from ((_root(name), node.name) for call in calls for name in call.args[:1])
    for each in nodes:
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield _root(each), each.attr
        if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "setattr":
            owner, name, *_ = [*each.args, None, None]
            yield _root(owner), str(getattr(name, "value", ""))


def _root(node: ast.AST | None) -> str:
    """`a` of a, a.b and a[0].b; "" where that is no name."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


class Statements:
    """The statements of a cell, found by name."""

    def __init__(self, text: str):
        self.all = statements(text)
        self.binding: dict[str, list[Statement]] = defaultdict(list)
        self.calling: dict[str, list[Statement]] = defaultdict(list)
        for statement in self.all:
            for name in statement.binds:
                self.binding[name].append(statement)
            for name in statement.calls:
                self.calling[name].append(statement)

    def making(self, name: str) -> list[Statement]:
        """The statements that make a name what it is: they bind it or, where it is a value,
        call its methods (`TABLE.append(3)`)."""
        binding = self.binding.get(name, [])
        if any(statement.is_value for statement in binding):
            return [*binding, *self.calling.get(name, [])]
        return binding


def needed_for(names: Iterable[str], cell: Statements) -> list[Statement]:
    """The statements of a cell that the names need, however indirectly, in their order."""
    chosen, seen, new = set[Statement](), set[str](), list(names)
    while new:
        name = new.pop()
        if name not in seen:
            seen.add(name)
            for statement in set(cell.making(name)) - chosen:
                chosen.add(statement)
                new += statement.mentions
    unbound = {name for each in chosen for name in each.uses} - cell.binding.keys()
    if unbound - ALWAYS_THERE:
        chosen.update(cell.binding.get(STAR, []))
    return sorted(chosen, key=lambda each: (each.first, each.last))


def strip_unused(text: str, names: Iterable[str]) -> str:
    """The cell with a blank line for every line that the names do not need; as it is if it
    binds none of them."""
    cell, text = Statements(text), tidied(text)
    if cell.binding.keys().isdisjoint(names := set(names)):
        return text
    return only(text, cell, needed_for(names, cell))


def only(text: str, cell: Statements, kept: Iterable[Statement]) -> str:
    """The text of a cell with blank lines in place of all its other statements."""
    numbers = {number for each in kept for number in range(each.first, each.last + 1)}
    lines = text.split("\n")
    for each in cell.all:
        if getattr(each.node, "module", "") != "__future__":
            for number in {*range(each.first, each.last + 1)} - numbers:
                lines[number - 1] = ""
    return "\n".join(lines)
