"""The statements at the top level of a cell: the names that each binds, and the names that it
uses. They are found without running the code. Annotations do not count: in a module they are
not evaluated.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from labkit.course.cells import parsed, without_tools

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*DEFINITIONS, ast.Lambda, *COMPREHENSIONS)
BUILTIN_NAMES = {*dir(builtins), "__name__", "__file__", "__doc__", "display", "get_ipython"}
MAX_CELL = 200_000  # characters; a longer cell is not read as code
COMPUTING = (ast.Call, ast.Await, ast.Subscript, ast.operator, ast.cmpop, *COMPREHENSIONS)
STAR = "*"
CACHED = 256  # cells: most cells are the same for all learners


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement at the top level of a cell.

    source       its lines
    first, last  the numbers of these, counted from 1
    binds        names that it assigns or changes; STAR: `import *`
    calls        names whose methods it calls only for the effect
    """

    node: ast.stmt
    source: str
    first: int
    last: int
    binds: frozenset[str]
    calls: frozenset[str]

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, IMPORTS)

    @property
    def is_value(self) -> bool:
        """Whether it computes a value at once: it is neither an import nor a definition."""
        return not isinstance(self.node, (*IMPORTS, *DEFINITIONS))

    @property
    def makes_function(self) -> bool:
        """Whether it names a lambda, a name or a `partial`, which calls nothing yet."""
        value = getattr(self.node, "value", None)
        parts = [value]
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("partial"):
            parts = [*value.args, *(keyword.value for keyword in value.keywords)]
        return isinstance(value, ast.Lambda) or not any(
            isinstance(node, COMPUTING)
            for part in parts
            for node in ast.walk(part or ast.Await())
        )

    @cached_property
    def uses(self) -> set[str]:
        """The global names that it looks up, also in functions that it defines."""
        names = {node.id for node in _without_annotations(self.node)}
        try:
            return names & {*_global_names(symtable.symtable(self.source, "", "exec"))}
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return names


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
                new += [child for child in values if isinstance(child, ast.AST)]


@lru_cache(CACHED)
def statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of a cell in their order; () if it is not valid Python."""
    text = without_tools(text) if len(text) <= MAX_CELL else ""
    tree, lines = parsed(text), text.split("\n")
    return tuple(_statement(node, lines) for node in tree.body) if tree else ()


def _statement(node: ast.stmt, lines: list[str]) -> Statement:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    last = node.end_lineno or node.lineno
    source, nodes = "\n".join(lines[first - 1 : last]), list(_scope_nodes(node))
    binds, calls = frozenset(_bound(nodes)), frozenset(_called(nodes))
    return Statement(node, source, first, last, binds, calls)


def _scope_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that belong to its own scope."""
    new = [node]
    while new:
        node = new.pop()
        yield node
        if not isinstance(node, SCOPES):
            new += ast.iter_child_nodes(node)


def _bound(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, DEFINITIONS):
            yield node.name  # @add_to_class(RMSNorm) changes RMSNorm
            calls = [d for d in node.decorator_list if isinstance(d, ast.Call)]
            yield from (_root(argument) for call in calls for argument in call.args[:1])
        elif isinstance(node, IMPORTS):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            yield _root(node)
        elif isinstance(node, ast.Call) and _root(node.func) == "setattr":
            yield from map(_root, node.args[:1])


def _called(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            yield _root(call.func)


def _root(node: ast.AST) -> str:
    """`a` of a, a.b and a[0].b; "" if that is not a name."""
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
        """Return the statements that define a name: they bind it or, if it is a value, call its
        methods (`TABLE.append(3)`)."""
        binding = self.binding.get(name, [])
        if any(statement.is_value for statement in binding):
            return [*binding, *self.calling.get(name, [])]
        return binding


def reach(
    names: Iterable[str], find: Callable[[str], list[Statement]]
) -> tuple[set[Statement], set[str]]:
    """Return the statements that the names need, directly or not; and the names without any.

    find    gives the statements that make a name
    """
    needed, missing, seen, new = set[Statement](), set[str](), set[str](), list(names)
    while new:
        name = new.pop()
        if name in seen:
            continue
        seen.add(name)
        found = find(name)
        if not found:
            missing.add(name)
        for statement in {*found} - needed:
            needed.add(statement)
            new += statement.uses
    return needed, missing


def strip_unused(text: str, names: Iterable[str]) -> str:
    """Return the cell with blank lines instead of those that the names do not need; unchanged
    if it binds none of the names."""
    cell, text = Statements(text), without_tools(text)
    if cell.binding.keys().isdisjoint(names := set(names)):
        return text
    needed, missing = reach(names, cell.making)
    stars = cell.making(STAR) if missing - BUILTIN_NAMES else []
    return only(text, cell, needed.union(stars))


def only(text: str, cell: Statements, needed: set[Statement]) -> str:
    """Return the text of a cell with blank lines instead of all its other statements."""
    numbers = {n for statement in needed for n in range(statement.first, statement.last + 1)}
    lines = text.split("\n")
    for statement in cell.all:
        if getattr(statement.node, "module", "") != "__future__":
            for number in {*range(statement.first, statement.last + 1)} - numbers:
                lines[number - 1] = ""
    return "\n".join(lines)
