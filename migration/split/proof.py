"""Check a split in memory, from the two files alone: put every helper back where it is called.

Nothing here shares code with the cutting. Parameters and results carry the names that the original
uses, so the inverse renames nothing: a call becomes the body of the helper, and the tree is the old one.
"""

from __future__ import annotations

import ast
import symtable
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migration.code.flakes import flakes
from migration.code.source import Source
from migration.code.structure import FunctionNode
from migration.code.syntax import parse
from migration.errors import MigrationError, Refusal


@dataclass(frozen=True)
class SplitProof:
    """What was verified."""

    helpers: int
    statements: int
    comments: int
    bytes_untouched: int


def prove(
    before: Source, owner: ast.ClassDef, method: FunctionNode, region: tuple[int, int], after: bytes
) -> SplitProof | tuple[Refusal, ...]:
    """A SplitProof, or every check that failed. `region` is the byte range of the method in `before`."""
    name, line = method.name, method.lineno

    def refuse(code: str, message: str) -> Refusal:
        return Refusal(code, name, line, message)

    start, end = region
    tail = before.data[end:]
    if after[:start] != before.data[:start] or not after.endswith(tail) or len(after) < start + len(tail):
        return (refuse("MG205", "bytes outside the method differ"),)
    text = after[start : len(after) - len(tail)]
    try:
        tree = parse(before.path, after)
        compile(tree, before.path, "exec", dont_inherit=True)
        old_comments, new_comments = _comments(before, before.data[start:end]), _comments(before, text)
    except (MigrationError, SyntaxError, ValueError) as error:
        return (refuse("MG201", str(error)),)
    first = before.place(start)[0]
    lines = range(first, first + len(text.splitlines()))
    new = [function for function in _functions(tree, owner) if function.lineno in lines]
    refusals: list[Refusal] = []
    try:
        restored, used = _Inverse(new[1:]).restore(new[0])
        if ast.dump(restored) != ast.dump(method):
            refusals.append(refuse("MG202", "the helpers put back do not give the original"))
        if unused := sorted({helper.name for helper in new[1:]} - set(used)):
            refusals.append(refuse("MG202", f"never called: {', '.join(unused)}"))
    except _Mismatch as mismatch:
        return (refuse("MG202", str(mismatch)),)
    refusals += [refuse("MG203", fault) for fault in _scope_faults(before.data, after, owner, method, new)]
    if old_comments != new_comments:
        difference = (old_comments - new_comments) + (new_comments - old_comments)
        refusals.append(refuse("MG204", f"not conserved: {', '.join(sorted(difference))}"))
    alone = range(method.lineno, method.lineno + 1)
    old_flakes = flakes(_skeleton(before.data, before.tree, alone), before.path)
    new_flakes = flakes(_skeleton(after, tree, lines), before.path)
    for flake in sorted((new_flakes - old_flakes) + (old_flakes - new_flakes)):
        refusals.append(refuse("MG203", f"{flake.kind}: {flake.name}"))
    if refusals:
        return tuple(refusals)
    statements = sum(isinstance(part, ast.stmt) for part in ast.walk(restored)) - 1
    return SplitProof(len(new) - 1, statements, sum(old_comments.values()), start + len(tail))


class _Mismatch(Exception):
    """A call that is not the exact inverse of its helper."""


def _functions(tree: ast.Module, owner: ast.ClassDef) -> list[FunctionNode]:
    """The functions of the class body in the order of their lines, those under `if` and `try` too."""
    found: list[FunctionNode] = []
    stack: list[ast.AST] = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.lineno == owner.lineno]
    while stack:
        for child in ast.iter_child_nodes(stack.pop()):
            if isinstance(child, FunctionNode):
                found.append(child)
            elif isinstance(child, ast.stmt | ast.ExceptHandler) and not isinstance(child, ast.ClassDef):
                stack.append(child)
    return sorted(found, key=lambda node: node.lineno)


class _Inverse:
    """Takes calls back to the bodies of the helpers they name."""

    def __init__(self, helpers: Sequence[FunctionNode]) -> None:
        self._helpers: Mapping[str, FunctionNode] = {helper.name: helper for helper in helpers}
        self.used: list[str] = []

    def restore(self, node: FunctionNode) -> tuple[FunctionNode, list[str]]:
        node.body = self._body(node.body, node)
        return node, self.used

    def _body(self, body: list[ast.stmt], owner: FunctionNode) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            inlined = self._inlined(statement, owner)
            if inlined is not None:
                found += self._body(inlined, owner)
                continue
            for holder in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                if isinstance(holder, FunctionNode | ast.ClassDef):
                    continue
                for field in ("body", "orelse", "finalbody"):
                    if isinstance(inner := getattr(holder, field, None), list):
                        setattr(holder, field, self._body(inner, owner))
            found.append(statement)
        return found

    def _inlined(self, statement: ast.stmt, owner: FunctionNode) -> list[ast.stmt] | None:
        call = getattr(statement, "value", None)
        awaited = isinstance(call, ast.Await)
        call = call.value if isinstance(call, ast.Await) else call
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            return None
        helper = self._helpers.get(call.func.attr)
        if helper is None:
            return None
        if helper.name in self.used:
            raise _Mismatch(f"{helper.name} is called twice")
        self.used.append(helper.name)
        first = owner.args.posonlyargs + owner.args.args
        given = [call.func.value, *call.args]
        wanted = [arg.arg for arg in helper.args.args]
        if (
            [getattr(part, "id", None) for part in given] != wanted
            or call.keywords
            or first[0].arg != wanted[0]
        ):
            raise _Mismatch(f"{helper.name} is not called with the names of its parameters")
        others = (helper.args.posonlyargs, helper.args.kwonlyargs, helper.args.vararg, helper.args.kwarg)
        if any(others) or helper.args.defaults or awaited != isinstance(helper, ast.AsyncFunctionDef):
            raise _Mismatch(f"{helper.name} has another kind of signature")
        if isinstance(statement, ast.Return):
            return helper.body
        if any(isinstance(part, ast.Return) for part in _own(helper.body[:-1])):
            raise _Mismatch(f"{helper.name} returns early, and its caller would go on")
        if isinstance(statement, ast.Expr):
            if any(isinstance(part, ast.Return) for part in _own(helper.body)):
                raise _Mismatch(f"{helper.name} returns what nobody takes")
            return helper.body
        last = helper.body[-1]
        if not (
            isinstance(statement, ast.Assign) and isinstance(last, ast.Return) and len(statement.targets) == 1
        ):
            raise _Mismatch(f"{helper.name} does not end by returning its results")
        if _plain(statement.targets[0]) != _plain(last.value) or None in _plain(last.value):
            raise _Mismatch(f"{helper.name} returns other names than its caller binds")
        return helper.body[:-1]


def _plain(node: ast.expr | None) -> list[str | None]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return [part.id if isinstance(part, ast.Name) else None for part in parts]


def _own(body: Sequence[ast.AST]) -> list[ast.AST]:
    found: list[ast.AST] = []
    stack = list(body)
    while stack:
        node = stack.pop()
        found.append(node)
        if not isinstance(node, FunctionNode | ast.Lambda | ast.ClassDef):
            stack += ast.iter_child_nodes(node)
    return found


def _skeleton(data: bytes, tree: ast.Module, lines: range) -> bytes:
    """The file with the bodies of the functions outside of `lines` taken out.

    They are the same on both sides, and reading them is most of what a search for names costs.
    """
    texts = data.splitlines(keepends=True)
    functions = [node for node in tree.body if isinstance(node, FunctionNode)]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            functions += [part for part in node.body if isinstance(part, FunctionNode)]
    for function in functions:
        inner = function.body[0]
        begin = min([inner.lineno, *(part.lineno for part in getattr(inner, "decorator_list", ()))])
        indent = texts[inner.lineno - 1][: inner.col_offset]
        if begin > function.lineno and not indent.strip() and function.lineno not in lines:
            stop = function.end_lineno or begin
            texts[begin - 1 : stop] = [indent + b"...\n", *[b"\n"] * (stop - begin)]
    return b"".join(texts)


def _comments(source: Source, text: bytes) -> Counter[str]:
    """Comments of an indented stretch of whole lines."""
    return Counter(comment.text for comment in Source(source.path, b"class _:\n" + text).comments)


def _scope_faults(
    before: bytes, after: bytes, owner: ast.ClassDef, method: FunctionNode, new: Sequence[FunctionNode]
) -> list[str]:
    """Names that are local in the original must be local in every piece, the others in none."""
    old = _tables(before, owner)[method.name, method.lineno]
    local = {symbol.get_name() for symbol in old.get_symbols() if symbol.is_local()}
    other = {symbol.get_name() for symbol in old.get_symbols()} - local
    faults: list[str] = []
    tables, seen = _tables(after, owner), set()
    for function in new:
        for symbol in tables[function.name, function.lineno].get_symbols():
            seen.add(symbol.get_name())
            if symbol.is_local() and symbol.get_name() in other:
                faults.append(f"became local in {function.name}: {symbol.get_name()}")
            if not symbol.is_local() and symbol.get_name() in local:
                faults.append(f"no longer local in {function.name}: {symbol.get_name()}")
    if seen != local | other:
        faults += [f"on one side only: {name}" for name in sorted(seen ^ (local | other))]
    return faults


def _tables(data: bytes, owner: ast.ClassDef) -> dict[tuple[str, int], symtable.SymbolTable]:
    """(name, line) -> table of the scopes in the class body."""
    found: dict[tuple[str, int], symtable.SymbolTable] = {}
    top = symtable.symtable(data.decode("utf-8-sig"), "<split>", "exec")
    stack = [t for t in top.get_children() if (t.get_name(), t.get_lineno()) == (owner.name, owner.lineno)]
    while stack:
        for table in stack.pop().get_children():
            found.setdefault((table.get_name(), table.get_lineno()), table)
            stack.append(table)
    return found
