"""Small edits of the right answer, for faults that no listed mistake explains: a sign, a name,
a number, a call, an argument or a step is different or missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from labkit.checks.mistakes import Mistake, Version, reference_cell
from labkit.course.lang import said, tr
from labkit.course.syllabus import Exercise, Lab

SIGNS = {
    ast.Add: "+ -", ast.Sub: "- +", ast.Mult: "* /", ast.Div: "/ *", ast.FloorDiv: "// /",
    ast.Mod: "% //", ast.Pow: "** *", ast.MatMult: "@ *", ast.BitAnd: "& |", ast.BitOr: "| &",
    ast.Lt: "< <= >", ast.LtE: "<= < >=", ast.Gt: "> >= <", ast.GtE: ">= > <=",
    ast.Eq: "== !=", ast.NotEq: "!= ==",
}  # fmt: skip
ALIKE = (  # pairs of names that are often confused
    "min max argmin argmax amin amax any all sum mean sin cos softmax log_softmax ceil floor "
    "rsqrt sqrt exp log sigmoid tanh cumsum cumprod cat stack repeat_interleave repeat "
    "round trunc append extend triu tril std var"
)
MODULES = ("torch", "F", "math", "nn", "nn.init", "nn.utils", "nn.functional", "torch.optim")
STEPS = (ast.Expr, ast.Assign, ast.AugAssign, ast.Continue, ast.Break, ast.Return)
MOST_QUOTED = 60  # characters
INSTEAD = said("the result is what the right code gives with `{new}` instead of `{old}`")
WITHOUT = said("the result is what the right code gives without `{name}`")
# The quoted code, the old and the new text in it, and the name of a part that is left out
Edit = tuple[ast.AST, ast.AST | tuple[int, int], str, str]


def edits_of(lab: Lab, exercise: Exercise, cell: str, kind: str) -> list[Version]:
    """Yield the right answer with each small edit that can be described in words of the
    learner's cell,
    outside lines that the cell has, too; as a mistake of this kind."""
    right, found = reference_cell(lab, exercise), dict[str, Version]()
    code = _Code(right, cell)
    for whole, part, new, name in code.edits():
        (first, last), (start, end) = code.span(whole), code.span(part)
        text = right[:start] + new + right[end:]
        whole_new = right[first:start] + new + right[end:last]
        quotes = [(right[first:last], whole_new), (right[start:end], new)]
        sentence = next((tr(INSTEAD, old=a.strip(), new=b.strip()) for a, b in quotes
                         if code.is_known(a) and code.is_known(b)), "")  # fmt: skip
        if name:
            sentence = tr(WITHOUT, name=name) if code.is_known(name) else ""
        if sentence:
            mistake = Mistake(lab, exercise.symbols[0], "edit", sentence, kind, ())
            found.setdefault(text, Version(mistake, (("", text.partition("\n")[2]),)))
    return [*found.values()]


class _Code:
    """The right code, and the words of the learner's."""

    def __init__(self, right: str, cell: str):
        self.right, self.words = right, {*re.findall(r"\w+", cell), *MODULES}
        self.called = {*re.findall(r"(\w+)\(", cell)}
        lines, same = right.split("\n"), {line.strip() for line in cell.split("\n")}
        self.starts = [sum(map(len, lines[:n])) + n for n in range(len(lines))]
        self.same = {n for n, line in enumerate(lines, 1) if line.strip() in same}

    def span(self, node: ast.AST | tuple[int, int]) -> tuple[int, int]:
        if isinstance(node, tuple):
            return node
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.right[start:end]

    def is_known(self, text: str) -> bool:
        """Whether a learner knows the names in a text, which is short."""
        names = re.findall(r"(?<![.\w\"'])[A-Za-z_]\w*", text)
        return "\n" not in text and len(text) <= MOST_QUOTED and {*names} <= self.words

    def edits(self) -> Iterator[Edit]:
        for function in ast.walk(ast.parse(self.right)):
            if isinstance(function, ast.FunctionDef):
                kinds = {
                    a.arg: ast.dump(a.annotation) for a in function.args.args if a.annotation
                }
                self.words |= {*kinds, "self", "True", "False"}
                for step in function.body[bool(ast.get_docstring(function)) :]:
                    for node in ast.walk(step):
                        if getattr(node, "lineno", None) and node.lineno not in self.same:
                            yield from self.of(node, kinds)

    def of(self, node: ast.AST, kinds: dict[str, str]) -> Iterator[Edit]:
        match node:
            case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
                yield from self.of_signs(node, left, op, right)
            case ast.AugAssign(left, op, right):
                yield from self.of_signs(node, left, op, right)
            case ast.BoolOp(op, values):
                sign = " and " if isinstance(op, ast.And) else " or "
                for value in values:
                    rest = sign.join(self.text(each) for each in values if each is not value)
                    yield node, node, f"({rest})", self.text(value)
            case ast.UnaryOp(_, operand) if not isinstance(operand, ast.Constant):
                yield node, node, self.text(operand), self.text(node)
            case ast.IfExp(_, body, orelse):
                either = f"{self.text(orelse)} or {self.text(body)}"
                for new in (self.text(body), self.text(orelse), either):
                    yield node, node, f"({new})", ""
            case ast.If(test):
                yield from ((test, test, new, "") for new in ("True", "False"))
            case ast.Name(name, ast.Load()) if name in kinds:
                others = (x for x in kinds if x != name and kinds[x] == kinds[name])
                yield from ((node, node, other, "") for other in others)
            case ast.keyword() | ast.Subscript():
                for part in ast.walk(node):
                    yield from self.of_index(node, part)
            case ast.JoinedStr() | ast.Constant(str()):
                start = self.span(node)[0]
                for found in re.finditer(r"\\n", self.text(node)):
                    span = start + found.start(), start + found.end()
                    yield from ((node, span, new, "") for new in ("", r"\n\n"))
            case ast.Call():
                yield from self.of_call(node)
            case ast.Raise(ast.Call(ast.Name(name))):
                yield node, node, "pass", f"raise {name}"
        if isinstance(node, STEPS):
            yield node, node, "pass", self.text(node)

    def of_index(self, whole: ast.AST, part: ast.AST) -> Iterator[Edit]:
        """Numbers that are others, and slices without a begin or an end."""
        text = self.text(part) if hasattr(part, "lineno") else ""
        if re.fullmatch(r"-?\d", text) and self.right[self.span(part)[0] - 1] != "-":
            for new in {int(text) - 1, int(text) + 1, 0, -1, -2} - {int(text)}:
                yield whole, part, str(new), ""
        for edge in (part.lower, part.upper) if isinstance(part, ast.Slice) else ():
            if edge:
                yield whole, edge, "", ""

    def of_signs(self, node, left, op, right) -> Iterator[Edit]:
        sign, *others = SIGNS.get(type(op), "").split() or [""]
        gap = self.span(left)[1], self.span(right)[0]
        for other in others:
            yield node, gap, self.right[slice(*gap)].replace(sign, other, 1), ""
        if isinstance(node, ast.BinOp):
            for part in (left, right):
                yield from self.of_index(node, part)
            a, b = self.text(left), self.text(right)
            yield node, node, a, f"{sign} {b}"
            yield node, node, b, f"{a} {sign}"
            if isinstance(left, ast.BinOp) and "(" in self.right[self.span(node)[0] : gap[0]]:
                yield node, node, f"{a} {sign} {b}", ""

    def of_call(self, node: ast.Call) -> Iterator[Edit]:
        function, parts = self.text(node.func), [*node.args, *node.keywords]
        owner, _, name = function.rpartition(".")
        texts = [self.text(part) for part in parts]
        if owner and owner not in MODULES:
            whole = self.text(node)[len(owner) if parts else 0 :]
            yield node, node, owner, whole if name in self.called else f".{name}()"
        elif len(node.args) == 1:
            yield node, node, texts[0], self.text(node) if name in self.called else f"{name}()"
        if name in (words := ALIKE.split()):
            end = self.span(node.func)[1]
            yield node, (end - len(name), end), words[words.index(name) ^ 1], ""
        for n, part in enumerate(texts):
            yield node, node, f"{function}({', '.join(texts[:n] + texts[n + 1 :])})", part
        for n in range(1, len(node.args)):
            order = [*texts[: n - 1], texts[n], texts[n - 1], *texts[n + 1 :]]
            yield node, node, f"{function}({', '.join(order)})", ""
