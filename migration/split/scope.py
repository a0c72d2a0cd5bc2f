"""The local names of one method and what its nested scopes capture of them.

A set of names is an int, one bit a name: the analyses form thousands of unions and differences.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from migration.code.facts import dotted, parameters
from migration.code.source import Source
from migration.code.structure import FunctionNode

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Nested = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | Comprehension
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
#: Builtins that have used up a generator expression, or a `key` function, when they return.
_CONSUMERS = frozenset(
    ("all", "any", "dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple")
)
_KEYED = frozenset(("max", "min", "sorted"))


@dataclass(frozen=True)
class Closure:
    """A nested scope that may outlive the statement that makes it, and the locals it captures."""

    line: int
    names: int


@dataclass(frozen=True)
class Scope:
    """The locals of a method but its self: `sites` has each name's binding lines, `places` all its lines.

    `shared` are the names that a nested scope binds: passing their value is not passing the name.
    """

    bits: Mapping[str, int]
    self_name: str | None
    arguments: int
    globals: frozenset[str]
    type_parameters: frozenset[str]
    closures: tuple[Closure, ...]
    sites: Mapping[int, tuple[int, ...]]
    places: Mapping[int, tuple[int, ...]]
    shared: int

    def mask(self, names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= self.bits.get(name, 0)
        return found

    def names(self, mask: int) -> tuple[str, ...]:
        """The names of a mask, parameters first, then by first binding."""
        return tuple(name for name, bit in self.bits.items() if mask & bit)

    def captured(self, node: Nested) -> int:
        """The locals of the method that the nested scope mentions."""
        return self.mask(free_names(node))


def method_scope(node: FunctionNode, self_name: str | None, shadowed: frozenset[str]) -> Scope:
    """The scope of a method; `shadowed` are builtin names that the module binds anew."""
    given = parameters(node.args)
    declared = frozenset(n for part in _own(node.body) if isinstance(part, ast.Global) for n in part.names)
    events = sorted(_events(node.body, top=True), key=lambda event: event[1:3])
    names = dict.fromkeys([*given, *(name for name, _, _, binds in events if binds)])
    bits = {
        name: 1 << index
        for index, name in enumerate(n for n in names if n != self_name and n not in declared)
    }
    sites: dict[int, list[int]] = {bits[name]: [node.lineno] for name in given if name in bits}
    places: dict[int, list[int]] = {bit: list(lines) for bit, lines in sites.items()}
    for name, line, _, binds in events:
        if bit := bits.get(name, 0):
            places.setdefault(bit, []).append(line)
            if binds:
                sites.setdefault(bit, []).append(line)
    consumers = _CONSUMERS - shadowed - names.keys()
    keyed = _KEYED - shadowed - names.keys()
    spent = _spent(node, consumers, keyed)
    closures: list[Closure] = []
    shared: set[str] = set()
    for part in _own(node.body):
        if not isinstance(part, Nested):
            continue
        shared |= set(_bound_from_within(part))
        late = free_names(part) if _lives_on(part, spent) else _late_names(part)
        if mask := sum({bits[name] for name in late if name in bits}):
            closures.append(Closure(part.lineno, mask))
    return Scope(
        bits,
        self_name,
        sum(bits[name] for name in given if name in bits),
        declared,
        frozenset(parameter.name for parameter in getattr(node, "type_params", ())),
        tuple(closures),
        {bit: tuple(lines) for bit, lines in sites.items()},
        {bit: tuple(lines) for bit, lines in places.items()},
        sum(bits[name] for name in shared if name in bits),
    )


def module_names(source: Source) -> frozenset[str]:
    """Every name that a module binds: at its top, under a condition, or from a function by `global`."""
    found: set[str] = set()
    stack: list[ast.AST] = list(source.tree.body)
    while stack:
        node = stack.pop()
        found.update(bound_names(node))
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        if not isinstance(node, _DEFINITIONS | ast.Lambda):
            stack += ast.iter_child_nodes(node)
    for line in re.findall(rb"^[ \t]*global[ \t]+(.*)", source.data, re.MULTILINE):
        found.update(re.findall(r"\w+", line.decode()))
    return frozenset(found)


def _lives_on(node: Nested, spent: set[int]) -> bool:
    return id(node) not in spent and not isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp)


def _spent(node: FunctionNode, consumers: frozenset[str], keyed: frozenset[str]) -> set[int]:
    """Ids of generator expressions and lambdas that the call they stand in has used up."""
    found: set[int] = set()
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        name, function = dotted(call.func), call.func
        method = function.attr if isinstance(function, ast.Attribute) else ""
        joins = method == "join" and isinstance(getattr(function, "value", None), ast.Constant)
        if call.args and isinstance(call.args[0], ast.GeneratorExp) and (name in consumers or joins):
            found.add(id(call.args[0]))
        if name in keyed or method == "sort":
            found.update(id(word.value) for word in call.keywords if word.arg == "key")
    return found


def _late_names(node: ast.AST) -> set[str]:
    """What scopes inside a comprehension that runs at once capture: they may live on."""
    found: set[str] = set()
    for part in ast.walk(node):
        if part is not node and isinstance(part, ast.Lambda | ast.GeneratorExp):
            found |= free_names(part)
    return found


def _own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes that run in the scope of `body`, with nested scopes themselves but not their insides."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        yield node
        stack.extend(outside_parts(node) if isinstance(node, Nested) else ast.iter_child_nodes(node))


def outside_parts(node: Nested) -> list[ast.expr]:
    """The expressions of a nested scope that its surroundings evaluate when it is made."""
    if isinstance(node, Comprehension):
        return [node.generators[0].iter]
    parts: list[ast.expr | None] = []
    if isinstance(node, ast.ClassDef):
        parts = [*node.decorator_list, *node.bases, *(word.value for word in node.keywords)]
    else:
        parts = [*getattr(node, "decorator_list", ()), *node.args.defaults, *node.args.kw_defaults]
    return [part for part in parts if part is not None]


def _events(body: Iterable[ast.AST], *, top: bool) -> Iterator[tuple[str, int, int, bool]]:
    """(name, line, column, binds or deletes?) for each mention in the scope of `body`.

    With `top`, nested scopes count with what they capture; annotations of locals are not evaluated.
    """
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        for name in bound_names(node):
            yield name, line, column, True
        if isinstance(node, ast.Name):
            yield node.id, line, column, not isinstance(node.ctx, ast.Load)
        elif isinstance(node, Nested):
            if top:
                yield from ((name, line, column, False) for name in free_names(node))
            if isinstance(node, Comprehension):
                yield from ((name, line, column, True) for name in _bound_from_within(node))
            stack.extend(outside_parts(node))
        elif isinstance(node, ast.AnnAssign):
            stack.extend(part for part in (node.target, node.value) if part is not None)
        else:
            stack.extend(ast.iter_child_nodes(node))


def bound_names(node: ast.AST) -> list[str]:
    """Names that `node` itself binds other than as a variable that is stored to."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, _DEFINITIONS):
        return [node.name]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return [node.name] if node.name else []
    if isinstance(node, ast.MatchMapping):
        return [node.rest] if node.rest else []
    return []


def _bound_from_within(node: Nested) -> Iterator[str]:
    """Names of the surrounding scope that a nested one binds: `nonlocal`, `:=` in a comprehension."""
    if isinstance(node, Comprehension):
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr):
                yield part.target.id
        return
    for part in ast.walk(node):
        if isinstance(part, ast.Nonlocal):
            yield from part.names


def free_names(node: Nested) -> set[str]:
    """Names that a nested scope takes from around it (globals and builtins among them)."""
    if isinstance(node, Comprehension):
        bound = {
            part.id
            for generator in node.generators
            for part in ast.walk(generator.target)
            if isinstance(part, ast.Name)
        }
        inside: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        inside += [part for g in node.generators for part in (g.target, *g.ifs)]
        inside += [g.iter for g in node.generators[1:]]
        return {name for name, *_ in _events(inside, top=True)} - bound
    if isinstance(node, ast.Lambda):
        return {name for name, *_ in _events([node.body], top=True)} - set(parameters(node.args))
    mentioned: set[str] = set()
    stored: set[str] = set()
    for name, _, _, binds in _events(node.body, top=True):
        (stored if binds else mentioned).add(name)
    declared = {n for part in _own(node.body) if isinstance(part, ast.Global) for n in part.names}
    outer = {n for part in _own(node.body) if isinstance(part, ast.Nonlocal) for n in part.names}
    if isinstance(node, ast.ClassDef):
        return (mentioned | outer) - declared
    # Annotations are evaluated when the function is made, or later: take them as captured.
    notes = [arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg) and arg.annotation]
    notes += [node.returns] if node.returns else []
    noted = {name for name, *_ in _events(notes, top=True)}
    return (mentioned - stored - set(parameters(node.args)) - declared) | outer | noted
