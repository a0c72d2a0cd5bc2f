"""Check a declaration in memory, from the two files alone.

Nothing here shares code with the editing or the prover: tests of the attributes are found by how they are
spelled, made in a copy of the old tree, and the tree of the new file without its declarations must be that one.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migration.code.copies import copy_tree
from migration.code.facts import parameters
from migration.code.flakes import flakes
from migration.code.source import Edit, Source, apply_edits
from migration.errors import MigrationError, Refusal


@dataclass(frozen=True)
class DeclareProof:
    """What was verified."""

    tests: int
    declarations: int
    comments: int
    bytes_untouched: int


def prove(
    before: Source, owner: ast.ClassDef, values: Mapping[str, str | None], edits: Sequence[Edit], after: bytes
) -> DeclareProof | tuple[Refusal, ...]:
    """A DeclareProof, or every check that failed.

    `values` are the attributes with what `__init__` declares them to be, None where it makes them already.
    """

    def refuse(code: str, message: str) -> Refusal:
        return Refusal(code, owner.name, owner.lineno, message)

    try:
        new = Source(before.path, after)
        compile(after, before.path, "exec", dont_inherit=True)
    except (MigrationError, SyntaxError, ValueError) as error:
        return (refuse("MG201", str(error)),)
    refusals: list[Refusal] = []
    place = _place(before.tree, owner)
    expected, there = copy_tree(before.tree), new.tree
    asked = _Tests(values)
    asked.visit(_at(expected, place))
    try:
        _take_out(_at(there, place), values)
    except (_Missing, StopIteration) as error:
        return (refuse("MG202", f"a declaration is not where it should be: {error}"),)
    if ast.dump(expected) != ast.dump(there):
        refusals.append(refuse("MG202", "the trees differ by more than tests and declarations"))
    spans = Counter((before.offset(*start), before.offset(*end)) for start, end in asked.spans)
    replaced = Counter((edit.start, edit.end) for edit in edits if edit.end > edit.start)
    inserted = [edit for edit in edits if edit.end == edit.start]
    wanted = sum(value is not None for value in values.values())
    if spans != replaced or len(inserted) != wanted or apply_edits(before.data, edits) != after:
        refusals.append(refuse("MG205", "bytes outside the tests and the declarations differ"))
    old, now = (Counter(comment.text for comment in side.comments) for side in (before, new))
    if old != now:
        lost = sorted(((old - now) + (now - old)).elements())
        refusals.append(refuse("MG204", f"not conserved: {', '.join(lost)}"))
    known = flakes(before.data, before.path)
    for flake in sorted(flakes(after, before.path) - known):
        refusals.append(refuse("MG203", f"{flake.kind}: {flake.name}"))
    if refusals:
        return tuple(refusals)
    untouched = len(before.data) - sum(end - start for start, end in spans.elements())
    return DeclareProof(len(asked.spans), wanted, sum(old.values()), untouched)


class _Missing(Exception):
    """The name of an attribute whose declaration was not found."""


def _place(tree: ast.Module, owner: ast.ClassDef) -> int:
    """Which of all classes of the file it is."""
    return [node.lineno for node in _classes(tree)].index(owner.lineno)


def _classes(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _at(tree: ast.Module, place: int) -> ast.ClassDef:
    return _classes(tree)[place]


def _take_out(owner: ast.ClassDef, values: Mapping[str, str | None]) -> None:
    """Remove the declaration of each attribute, the first of its spelling, from the body of `__init__`."""
    init = next(n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    first = _first(init)
    for name, value in values.items():
        if value is None:
            continue
        spelled = ast.unparse(ast.parse(f"{first}.{name} = {value}"))
        found = [statement for statement in init.body if ast.unparse(statement) == spelled]
        if not found:
            raise _Missing(name)
        init.body.remove(found[0])


def _first(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> str | None:
    """What a function of a class body calls the object, None where it is handed none."""
    positional = [*node.args.posonlyargs, *node.args.args]
    if isinstance(node, ast.Lambda) or not positional:
        return None
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    implicit = node.name in ("__new__", "__init_subclass__", "__class_getitem__")
    return None if implicit or decorators & {"staticmethod", "classmethod"} else positional[0].arg


class _Tests(ast.NodeTransformer):
    """Make `self.x is not None`, `self.x is None` and `self.x` of the tests of the attributes on self.

    `spans` are the ends of what is replaced, by line and column.
    """

    def __init__(self, values: Mapping[str, str | None]) -> None:
        self.values = values
        self.self_name: str | None = None
        self.depth = 0
        self.inside = 0
        self.spans: list[tuple[tuple[int, int], tuple[int, int]]] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class inside of the class is another one."""
        self.depth += 1
        if self.depth == 1:
            self.generic_visit(node)
        self.depth -= 1
        return node

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> ast.AST:
        outer = self.self_name
        if not self.inside:
            self.self_name = _first(node)
        elif outer in parameters(node.args):
            # Another self; defaults were evaluated outside, where self is still ours.
            node.args.defaults = [self.visit(part) for part in node.args.defaults]
            node.args.kw_defaults = [part and self.visit(part) for part in node.args.kw_defaults]
            return node
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1
        self.self_name = outer
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not) and node.lineno == node.end_lineno:
            made = self._made(node.operand)
            if isinstance(made, ast.Compare):
                self._note(node)
                return ast.Compare(made.left, [ast.Is()], made.comparators)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        made = self._made(node)
        if made is None:
            return self.generic_visit(node)
        self._note(node)
        return made

    def _made(self, node: ast.AST) -> ast.expr | None:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
            return None
        asks, owner = node.func.id, node.args[0]
        name = getattr(node.args[1], "value", None)
        if asks not in ("hasattr", "getattr") or not isinstance(name, str) or name not in self.values:
            return None
        if not (isinstance(owner, ast.Name) and owner.id == self.self_name):
            return None
        attribute = ast.Attribute(ast.Name(owner.id, ast.Load()), name, ast.Load())
        if asks == "getattr":
            return attribute
        if self.values[name] is None:
            return ast.Constant(True)
        return ast.Compare(attribute, [ast.IsNot()], [ast.Constant(None)])

    def _note(self, node: ast.expr) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        self.spans.append(((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)))
