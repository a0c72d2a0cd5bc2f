"""What a recipe declares, in one method: the expressions that become a handle, and where they stand.

    self.core_engine.view.free_pages()     self._view.free_pages()         [[handles]] expressions
    self._put_on_hold(batch)               self._rebalancer.hold(batch)    [[rewrites]]
    self.args.max_tokens                   self._config.max_tokens         [snapshot]

The largest expression that is declared wins. An attribute chain that is written or deleted as a whole, or
spread over several lines, is left to the handle of its first attribute.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from migration.code.copies import copy_tree
from migration.code.facts import SelfUse, method_facts, name_uses, parameters
from migration.code.source import Source
from migration.code.syntax import expression_or_none
from migration.errors import Refusal
from migration.move.body import LineEdit
from migration.move.moving import Moving
from migration.move.proven import Place, Proven, in_method
from migration.patterns import expression
from migration.recipe import Recipe
from migration.recipe_check import near


@dataclass(frozen=True)
class Rule:
    """`pattern` (with `self` for the first parameter) becomes `members` of `handle`.

    Without a handle `pattern` is the constant that a call becomes, spelled by the one member. With a
    `capability` a hasattr call becomes an isinstance test of the handle with that Protocol.
    """

    text: str
    pattern: ast.expr
    handle: str
    members: tuple[str, ...]
    #: A chain may be left to the host; a rewrite must be made wherever it matches.
    optional: bool
    capability: str = ""


@dataclass(frozen=True)
class Declared:
    """`moving` is the method without the declared expressions: its facts are what is left of self.

    `uses` are (handle, use) of what the rules put in their place.
    """

    moving: Moving
    edits: tuple[LineEdit, ...]
    uses: tuple[tuple[str, SelfUse], ...]
    matched: Counter[str]
    refusals: tuple[Refusal, ...]


def mark(handle: str) -> str:
    """Name that stands for a handle in the tree of `Declared.moving`; no program can spell it."""
    return f"<{handle}>"


@lru_cache(maxsize=8)
def rules(recipe: Recipe) -> tuple[Rule, ...]:
    """Everything that the recipe declares about expressions."""
    chains = [
        Rule(text, expression(text), handle.name, (), optional=True)
        for handle in recipe.handles
        for text in handle.expressions
    ]
    rewrites = [
        Rule(spec.before, expression(spec.before), spec.handle, spec.members, optional=False)
        for spec in recipe.rewrites
    ]
    return (*rewrites, *chains, *_fields(recipe))


def _fields(recipe: Recipe) -> Iterator[Rule]:
    """Reads of what the snapshot holds."""
    if recipe.snapshot is not None:
        for path in recipe.snapshot.fields:
            name = path.rpartition(".")[2]
            text = f"self.{path}"
            yield Rule(text, expression(text), recipe.snapshot.name, (name,), optional=True)


def unmatched(recipe: Recipe, declared: Iterable[Declared]) -> list[str]:
    """What to say of each rewrite that occurs in no method; a part of a slice need not have all."""
    if recipe.partial or not recipe.rewrites:
        return []
    found = list(declared)
    matched = {text for one in found for text in one.matched}
    refused = {
        refusal.message.partition("`")[2].partition("`")[0] for one in found for refusal in one.refusals
    }
    missing = [spec.before for spec in recipe.rewrites if spec.before not in matched | refused]
    if not missing:
        return []
    said = {text for one in found for text in _expressions(one.moving)}
    return [f"rewrites: no moved method says {text}{near(text, said)}" for text in missing]


def unused(recipe: Recipe, declared: Iterable[Declared]) -> list[str]:
    """Remarks on chains and fields that moved code does not have."""
    found = list(declared)
    matched = {text for one in found for text in one.matched}
    missing = [rule for rule in rules(recipe) if rule.optional and rule.text not in matched]
    said = {text for one in found for text in _expressions(one.moving)} if missing else set()
    return [
        f"recipe: {rule.handle} lists {rule.text}, which no moved method uses{near(rule.text, said)}"
        for rule in missing
    ]


def _expressions(moving: Moving) -> Iterator[str]:
    """The expressions on self in a method, as a recipe would spell them."""
    owner = moving.facts.self_name
    for node in ast.walk(moving.node):
        if isinstance(node, ast.Attribute | ast.Call):
            names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
            if any(name.id == owner for name in names) and len(names) <= 2:
                text = ast.unparse(node)
                yield text if owner == "self" else re.sub(rf"\b{owner}\b", "self", text)


def declare(
    source: Source, moving: Moving, recipe: Recipe, proven: Mapping[Place, Proven] | None = None
) -> Declared:
    """Apply the rules of a recipe to one method, and what is proved of single calls, by their place."""
    found = rules(recipe)
    calls = _single(recipe, dict(in_method(proven or {}, moving.node)))
    if not (found or calls) or moving.facts.self_name is None:
        return Declared(moving, (), (), Counter(), ())
    finder = _Finder(source, moving, found, calls)
    node = copy.copy(moving.node)
    node.body = [finder.visit(copy_tree(statement)) for statement in node.body]  # type: ignore[misc]
    if not finder.matched:
        return Declared(moving, (), (), Counter(), tuple(finder.refusals))
    left = dataclasses.replace(
        moving, method=dataclasses.replace(moving.method, node=node), facts=method_facts(node)
    )
    handles = dict.fromkeys(rule.handle for rule in (*found, *calls.values()) if rule.handle)
    uses = [(handle, use) for handle in handles for use in name_uses(node, mark(handle))]
    return Declared(left, tuple(finder.edits), tuple(uses), finder.matched, tuple(finder.refusals))


def _single(recipe: Recipe, proven: Mapping[Place, Proven]) -> dict[Place, Rule]:
    """A rule for each proven call: an attribute is read through its handle, a constant through none."""
    made: dict[Place, Rule] = {}
    for place, one in proven.items():
        pattern = expression(one.after)
        handle = recipe.handle_for(one.attribute).name
        if one.capability:
            made[place] = Rule(one.before, pattern, handle, (), optional=False, capability=one.capability)
        elif one.attribute:
            made[place] = Rule(one.before, pattern, handle, (one.attribute,), optional=False)
        else:
            made[place] = Rule(one.before, pattern, "", (one.after,), optional=False)
    return made


class _Finder(ast.NodeTransformer):
    """Put marks in place of the declared expressions, largest first."""

    def __init__(
        self, source: Source, moving: Moving, found: Iterable[Rule], calls: Mapping[Place, Rule]
    ) -> None:
        self._source = source
        self._calls = calls
        self._label = moving.label
        self._self = moving.facts.self_name or ""
        self._rules: dict[type[ast.expr], list[Rule]] = {}
        for rule in found:
            self._rules.setdefault(type(rule.pattern), []).append(rule)
        self.edits: list[LineEdit] = []
        self.matched: Counter[str] = Counter()
        self.refusals: list[Refusal] = []

    def visit(self, node: ast.AST) -> ast.AST:
        rule = self._rule(node) if isinstance(node, ast.expr) else None
        if isinstance(node, ast.expr) and rule is not None and self._made(rule, node):
            if not rule.handle:
                return ast.copy_location(copy_tree(rule.pattern), node)
            marked: ast.expr = ast.Name(mark(rule.handle), ast.Load())
            if rule.capability and isinstance(node, ast.Call):
                # The Protocol of the handle needs no more than for the hasattr that was there.
                asked = copy_tree(node)
                asked.args[0] = ast.copy_location(marked, node.args[0])
                return asked
            for member in rule.members:
                marked = ast.Attribute(ast.copy_location(marked, node), member, ast.Load())
            return ast.copy_location(marked, node)
        result: ast.AST = super().visit(node)
        return result

    def _rule(self, node: ast.expr) -> Rule | None:
        found = (rule for rule in self._rules.get(type(node), ()) if _same(rule.pattern, node, self._self))
        single = self._calls.get((node.lineno, node.col_offset)) if isinstance(node, ast.Call) else None
        return next(found, single)

    def _made(self, rule: Rule, node: ast.expr) -> bool:
        """Note the edit of one match; False where it is left as it is."""
        assert node.end_col_offset is not None
        if node.lineno != node.end_lineno:
            if not rule.optional:
                message = f"`{rule.text}` is spread over several lines"
                self.refusals.append(Refusal("MG018", self._label, node.lineno, message))
            return False
        line = self._source.lines[node.lineno - 1]
        text = line[node.col_offset : node.end_col_offset]
        if not _spells(text, node):
            message = f"the place of `{rule.text}` inside a string is not exact on this Python"
            self.refusals.append(Refusal("MG018", self._label, node.lineno, message))
            return False
        path = (f"{self._self}._{rule.handle}", *rule.members) if rule.handle else rule.members
        after = ".".join(path).encode()
        if rule.capability:
            after = b"isinstance(%b, %b)" % (after, rule.capability.encode())
        following = line[node.end_col_offset : node.end_col_offset + 1]
        after += b" " if following.isalnum() or following == b"_" else b""
        self.edits.append(LineEdit(node.lineno, node.col_offset, len(text), after))
        self.matched[rule.text] += 1
        return True

    def _scope(self, node: ast.AST) -> ast.AST:
        arguments = getattr(node, "args", None)
        if isinstance(arguments, ast.arguments) and self._self in parameters(arguments):
            # Another self inside; what is evaluated outside still is ours.
            arguments.defaults = [self.visit(part) for part in arguments.defaults]  # type: ignore[misc]
            arguments.kw_defaults = [part and self.visit(part) for part in arguments.kw_defaults]  # type: ignore[misc]
            decorators = getattr(node, "decorator_list", [])
            decorators[:] = [self.visit(part) for part in decorators]
            return node
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _scope

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.target = self.visit(node.target)  # type: ignore[assignment]
        node.value = node.value and self.visit(node.value)  # type: ignore[assignment]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node


def _same(pattern: object, node: object, owner: str) -> bool:
    """Structural equality, with `owner` for the pattern's `self`."""
    if isinstance(pattern, ast.Name) and pattern.id == "self":
        return isinstance(node, ast.Name) and node.id == owner and isinstance(node.ctx, ast.Load)
    if isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and all(
            _same(value, getattr(node, field, None), owner)
            for field, value in ast.iter_fields(pattern)
            if field != "kind"
        )
    if isinstance(pattern, list):
        return (
            isinstance(node, list)
            and len(pattern) == len(node)
            and all(_same(one, other, owner) for one, other in zip(pattern, node, strict=True))
        )
    return type(pattern) is type(node) and pattern == node


def _spells(text: bytes, node: ast.expr) -> bool:
    """True where the bytes at the place of a node are the node."""
    parsed = expression_or_none(text)
    return parsed is not None and ast.dump(parsed) == ast.dump(node)
