"""Small faults that a test should notice: every mutant of a source file, as text spliced into it.

Not mutated: docstrings and all other strings (names of random streams among them), annotations and type aliases, error
messages, asserts, decorators, protocols, and words that only say how a thing is computed (`dtype`, `precision`, ...).
"""

import ast
import itertools
from collections import Counter
from copy import deepcopy
from dataclasses import replace

from mutation.mutant import Mutant
from mutation.tables import (
    ARITHMETIC,
    COMPARISONS,
    MASKS,
    NAMESPACES,
    SIMPLE,
    SWAPPED,
    TECHNICAL,
    TRANSPARENT,
    TWO_BRANCHES,
)


def mutants(path: str, source: str) -> list[Mutant]:
    """All mutants of one file, in the order of their places."""
    tree = ast.parse(source)
    offsets = [0, *itertools.accumulate(len(line) for line in source.encode().splitlines(keepends=True))]
    found, seen, counts = [], {ast.dump(tree)}, Counter[str]()
    for node, operator, after, function in _Sites(source).collected(tree):
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        before = source.encode()[start:end].decode()
        line = source.splitlines()[node.lineno - 1]
        made = Mutant(path, node.lineno, node.col_offset, operator, before, after, start, end, line, function)
        dumped = ast.dump(ast.parse(made.applied(source)))
        if dumped not in seen:
            seen.add(dumped)
            found.append(replace(made, number=counts[made.id]))
            counts[made.id] += 1
    return sorted(found, key=lambda one: (one.line, one.column, one.operator, one.number))


class _Sites(ast.NodeVisitor):
    """Walks over what may be mutated."""

    def __init__(self, source: str):
        self.source = source
        self.functions: list[ast.FunctionDef] = []  # around the node at hand, the innermost last
        self.found: list[tuple[ast.expr | ast.stmt, str, str, int | None]] = []
        self.in_alias = False

    def collected(self, tree: ast.Module) -> list[tuple[ast.expr | ast.stmt, str, str, int | None]]:
        self.visit(tree)
        return self.found

    def text(self, node: ast.AST) -> str:
        """As it is written, in parentheses where another operator might pull it apart."""
        text = ast.get_source_segment(self.source, node) or ast.unparse(node)
        return text if isinstance(node, SIMPLE) else f"({text})"

    def add(self, node: ast.expr | ast.stmt, operator: str, after: ast.AST | str) -> None:
        if not isinstance(after, str):
            after = ast.unparse(after) if isinstance(after, SIMPLE) else f"({ast.unparse(after)})"
        self.found.append((node, operator, after, self.functions[-1].lineno if self.functions else None))

    # What is left alone

    def skip(self, node: ast.AST) -> None:
        """Nothing below is mutated."""

    visit_Raise = visit_Assert = visit_Import = visit_ImportFrom = visit_JoinedStr = skip

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self.functions.append(node)
        for statement in node.body:
            self.visit(statement)
        self.functions.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any("Protocol" in ast.unparse(base) for base in node.bases):
            for statement in node.body:
                self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg == "axis" and (axis := _number(node.value)) is not None:
            self.add(node.value, "axis", "1" if axis == 0 else "0")
        elif node.arg not in TECHNICAL:
            self.visit(node.value)

    # Statements

    def visit_Assign(self, node: ast.Assign) -> None:
        target, loaded = node.targets[0], {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
        if self.functions and isinstance(target, ast.Name) and target.id in loaded:
            self.add(node, "drop-update", "pass")
        self.in_alias = not self.functions
        self.visit(node.value)
        self.in_alias = False

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            returned = self.functions[-1].returns
            if isinstance(returned, ast.Name) and returned.id == "Array":
                self.add(node.value, "double", f"(2 * {self.text(node.value)})")
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add(node, "drop-update", "pass")
        if type(node.op) in ARITHMETIC:
            changed = deepcopy(node)
            changed.op = ARITHMETIC[type(node.op)]()
            self.add(node, "arithmetic", changed)
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def negate(self, test: ast.expr) -> None:
        plain = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
        if not plain and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            self.add(test, "negate", f"(not {self.text(test)})")

    # Expressions

    def visit_BinOp(self, node: ast.BinOp) -> None:
        union = isinstance(node.op, ast.BitOr) and (self.in_alias or any(map(_is_none, (node.left, node.right))))
        if not union and type(node.op) in ARITHMETIC:
            changed = deepcopy(node)
            changed.op = ARITHMETIC[type(node.op)]()
            self.add(node, "arithmetic", changed)
            if isinstance(node.op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr):
                self.add(node, "keep-left", self.text(node.left))
                self.add(node, "keep-right", self.text(node.right))
            elif isinstance(node.op, ast.Sub | ast.Div | ast.Mod | ast.Pow):
                self.add(node, "keep-left", self.text(node.left))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, operation in enumerate(node.ops):
            for name, other in zip(("compare", "reverse"), COMPARISONS[type(operation)], strict=False):
                changed = deepcopy(node)
                changed.ops[index] = other()
                self.add(node, name, changed)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add(node, "logic", changed)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.add(node, "drop-sign", self.text(node.operand))
        if isinstance(node.operand, ast.Constant):
            self.constant(node.operand, signed=True)
        else:
            self.visit(node.operand)

    def visit_Constant(self, node: ast.Constant) -> None:
        self.constant(node)

    def constant(self, node: ast.Constant, signed: bool = False) -> None:
        value = node.value
        if isinstance(value, bool):
            self.add(node, "constant", str(not value))
        elif isinstance(value, int | float):
            self.add(node, "constant", repr(value + 1))
            if value == 1:
                self.add(node, "constant-zero", repr(value - 1))
            if isinstance(value, float) and value and not signed:
                self.add(node, "sign", f"(-{value!r})")

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None and _number(bound) is None:
                self.add(bound, "shift", f"({self.text(bound)} + 1)")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        other = {"online_q": "target_q", "target_q": "online_q"}.get(node.id)
        known = {argument.arg for function in self.functions for argument in function.args.args}
        if other in known:
            self.add(node, "swap-name", other)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = ast.unparse(node.value).split(".")[0]
        if base in NAMESPACES and node.attr in SWAPPED:
            self.add(node, "swap-name", f"{ast.unparse(node.value)}.{SWAPPED[node.attr]}")
        else:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        function, name, arguments = node.func, _name(node.func), node.args
        if name in ("isinstance", "issubclass", "cast", "TypeVar"):
            return
        if isinstance(function, ast.Name) and name in SWAPPED:
            self.add(function, "swap-name", SWAPPED[name])
        if isinstance(function, ast.Attribute):
            base = ast.unparse(function.value).split(".")[0]
            if base not in NAMESPACES and name in SWAPPED:  # a method
                self.add(node, "swap-name", _with_name(node, SWAPPED[name]))
        if name in TRANSPARENT and arguments:
            self.add(node, "first-argument", self.text(arguments[0]))
        if name == "map" and len(arguments) == 2 and _name(arguments[0]) == "stop_gradient":
            self.add(node, "first-argument", self.text(arguments[1]))
        if name in TWO_BRANCHES and len(arguments) >= 3:
            changed = deepcopy(node)
            changed.args[1], changed.args[2] = changed.args[2], changed.args[1]
            self.add(node, "swap-branches", changed)
        unchanged = _before_update(node)
        if unchanged is not None:
            self.add(node, "drop-update", self.text(unchanged))
        for argument in (*arguments, *(keyword.value for keyword in node.keywords)):
            if isinstance(argument, ast.Name | ast.Attribute) and _name(argument) in MASKS:
                self.add(argument, "no-mask", "None")
        self.generic_visit(node)


def _name(node: ast.AST) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _with_name(call: ast.Call, name: str) -> ast.Call:
    changed = deepcopy(call)
    assert isinstance(changed.func, ast.Attribute)
    changed.func.attr = name
    return changed


def _before_update(call: ast.Call) -> ast.expr | None:
    """x of `x._replace(...)` and of `x.at[...].set(...)`."""
    if not isinstance(call.func, ast.Attribute):
        return None
    inner = call.func.value
    if call.func.attr == "_replace":
        return inner
    if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Attribute) and inner.value.attr == "at":
        return inner.value.value
    return None


def _number(node: ast.AST) -> int | float | None:
    try:
        value = ast.literal_eval(node)  # type: ignore[arg-type]
    except ValueError:
        return None
    return value if isinstance(value, int | float) else None


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
