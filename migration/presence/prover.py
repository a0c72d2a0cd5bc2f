"""For each `hasattr(self, "x")` of a class: is it always true, never, or does it depend on what ran before?

A claim covers objects made by calling the class or a subclass in the tree, and code of the tree that
names the attribute. Not covered, because no file shows it: attributes that code elsewhere sets or
deletes under a computed name, and subclasses outside the tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from migration.code.source import Source
from migration.code.structure import ClassOutline, FunctionNode
from migration.code.tree import Tree
from migration.presence.answer import Answer
from migration.presence.attribute_uses import takes_self
from migration.presence.class_files import ClassFiles, Module, OneFile
from migration.presence.declaring import all_or_none
from migration.presence.findings import Assumed, HasattrFinding, Rewrite, Site, Verdict
from migration.presence.of_class import ClassPresence
from migration.presence.places import context, holds_self, is_operand
from migration.presence.rewrites import is_special, rewrite
from migration.presence.values import Test
from migration.presence.world import World


def prove_hasattr(
    source: Source, outline: ClassOutline, tree: Tree | None = None, path: str | None = None
) -> tuple[HasattrFinding, ...]:
    """Findings for every hasattr and getattr on self in the class, in source order. Pure.

    Args:
        tree: the repository, for base classes, subclasses and other code that touches the
            attributes; without it only this file is looked at, and the findings say so.
        path: where the file is in the tree (default: the path of `source`).
    """
    world = world_of(source, outline, tree, path)
    return findings_of(world, source, outline, "file" if tree is None else "tree")


def world_of(
    source: Source, outline: ClassOutline, tree: Tree | None = None, path: str | None = None
) -> World:
    """The class among its kin and the files around it; its nodes are those of `source`."""
    name = path or source.path
    files = ClassFiles(tree or OneFile(name, source.data))
    module = Module(name, source.data, source.tree)
    files.add(module)
    return World(files, module, outline.node)


def findings_of(
    world: World, source: Source, outline: ClassOutline, scope: Literal["file", "tree"] = "tree"
) -> tuple[HasattrFinding, ...]:
    """The findings of a class whose world is known."""
    prover = _Prover(source, world, scope)
    found = [finding for method in outline.methods for finding in prover.method(method.node)]
    return all_or_none(tuple(sorted(found, key=lambda finding: (finding.line, finding.column))))


class _Prover:
    def __init__(self, source: Source, world: World, scope: Literal["file", "tree"]) -> None:
        self.source = source
        self.world = world
        self.scope: Literal["file", "tree"] = scope

    def method(self, node: FunctionNode) -> Iterator[HasattrFinding]:
        """Findings of one method."""
        if not takes_self(node):
            return
        tests = self.world.presence.trace(self.world.owner, node).tests
        if not tests:
            return
        parents = {id(child): part for part in ast.walk(node) for child in ast.iter_child_nodes(part)}
        for test in tests:
            yield self._finding(node, test, parents)

    def _finding(self, method: FunctionNode, test: Test, parents: dict[int, ast.AST]) -> HasattrFinding:
        call, name = test.node, test.attribute
        sites: tuple[Site, ...] = ()
        if name is not None:
            sites = (*self.world.sites(name), *self.world.removals(name))
        claim = self._claim(method, test, sites, self.world.presence)
        if claim.verdict == "always" and (unseen := self.world.risks("adds")):
            # An attribute set under a computed name may stand before a helper of the class.
            alone = self.world.without_helpers
            (same,) = (t for t in alone.trace(self.world.owner, method).tests if t.node is test.node)
            if self._claim(method, same, sites, alone).verdict != "always":
                claim = claim._replace(obstacles=(*claim.obstacles, *unseen))
        answer = Answer(
            method,
            test,
            claim.verdict,
            claim.reason,
            sites,
            is_operand(call, parents),
            holds_self(test, parents),
        )
        change, more = rewrite(self.source, self.world, answer)
        verdict, reason, assumed = claim.verdict, claim.reason, None
        obstacles = tuple(dict.fromkeys((*claim.obstacles, *more)))
        if obstacles and (verdict != "depends" or change.kind in ("optional", "declared", "capability")):
            assumed = Assumed(verdict, reason, obstacles, change)
            if change.kind != "attribute" or len(call.args) > 2:
                change = Rewrite("refused", None, obstacles[0])
            if verdict != "depends":
                verdict, reason = "depends", obstacles[0]
        return HasattrFinding(
            kind=test.kind,
            method=method.name,
            attribute=name,
            line=call.lineno,
            column=call.col_offset,
            end_line=call.end_lineno or call.lineno,
            end_column=call.end_col_offset or 0,
            spelled=ast.unparse(call),
            context=context(test, parents),
            verdict=verdict,
            reason=reason,
            sites=sites,
            rewrite=change,
            assumed=assumed,
            scope=self.scope,
        )

    def _claim(
        self, method: FunctionNode, test: Test, sites: tuple[Site, ...], presence: ClassPresence
    ) -> _Claim:
        world, name = self.world, test.attribute
        if name is None:
            return _Claim("depends", "the name is computed")
        if is_special(name, world):
            return _Claim("depends", "the name is special to Python, or mangled")
        if world.rebound_builtin is not None:
            return _Claim("depends", world.rebound_builtin)
        if world.rebinds_self(method):
            return _Claim("depends", f"{method.name} gives self another meaning")
        if test.state is None:
            return _Claim("depends", "this test is never reached")
        for known in world.kin.outside:
            if known.body.kind(name) not in (None, "attribute"):
                return _Claim("depends", f"{known.name} binds it in its own way ({known.where})")
        if (in_body := world.in_class_body(name)) is not None:
            return self._in_class_body(name, in_body, sites)
        removals = [site for site in sites if site.kind == "delete"]
        if removals:
            return _Claim("depends", f"deleted in {_places(removals)}")
        if name in test.state:
            reason = f"every way through {method.name} to this test has used or made it"
            return _Claim("always", reason, (*world.blind_spots, *self._may_go(name)))
        if name in presence.after_init:
            return self._made_by_init(method, name, presence)
        return self._not_made_by_init(name, sites)

    def _may_go(self, name: str) -> tuple[str, ...]:
        elsewhere = (
            f"{_place(site)} deletes it from some object" for site in self.world.elsewhere(name, "delete")
        )
        return (*self.world.risks("removes"), *elsewhere)

    def _in_class_body(self, name: str, kind: str, sites: tuple[Site, ...]) -> _Claim:
        made = [site for site in sites if site.kind in ("class body", "method", "property")]
        if kind == "computed":
            return _Claim(
                "depends", f"a property: absent when its getter raises AttributeError ({_places(made)})"
            )
        if kind == "unknown":
            return _Claim(
                "depends", f"what the class body binds may answer with AttributeError ({_places(made)})"
            )
        obstacles = [
            f"{_place(site)} deletes it from some object" for site in self.world.elsewhere(name, "delete")
        ]
        for known in self.world.kin.all:
            lines = known.module.uses.computed_deletes
            obstacles += [f"{known.module.path}:{line} deletes under a computed name" for line in lines]
        reason = f"the class body has it ({_places(made)})"
        return _Claim("always", reason, (*self.world.blind_spots, *obstacles))

    def _made_by_init(self, method: FunctionNode, name: str, presence: ClassPresence) -> _Claim:
        world = self.world
        early = presence.before(name)
        if method.name == "__init__" or (early is not None and method.name in early):
            return _Claim("depends", f"{method.name} may run before __init__ has made it")
        obstacles = [*world.blind_spots, *self._may_go(name), *world.init_bypassed]
        if early is None:
            obstacles.append("code that gets self before __init__ has made it may call this method")
        reason = "__init__ makes it on every way, before any code that could ask"
        return _Claim("always", reason, tuple(obstacles))

    def _not_made_by_init(self, name: str, sites: tuple[Site, ...]) -> _Claim:
        world = self.world
        if sites:
            if all(site.kind == "init, some ways" for site in sites):
                return _Claim("depends", f"__init__ makes it on some ways only ({_places(sites)})")
            nones = ", once as None" if any(site.value == "None" for site in sites) else ""
            return _Claim("depends", f"absent until it is made by {_places(sites)}{nones}")
        if world.kin.too_many:
            return _Claim("depends", f"the class does not make it; {world.kin.too_many} subclasses may")
        if (foreign := next(world.elsewhere(name, "store"), None)) is not None:
            return _Claim("depends", f"may be made outside the class ({_place(foreign)})")
        obstacles = (*world.blind_spots, *world.risks("adds"), *world.hooks("__getattr__"), *world.escapes)
        return _Claim("never", "nothing makes it", obstacles)


class _Claim(NamedTuple):
    """What the visible code says; `obstacles` is what may be wrong with that."""

    verdict: Verdict
    reason: str
    obstacles: tuple[str, ...] = ()


def _place(site: Site) -> str:
    return f"{site.path}:{site.line}"


def _places(sites: Sequence[Site], shown: int = 3) -> str:
    """`setup, lines 3 and 5; reset, line 9`"""
    lines: dict[str, list[int]] = {}
    for site in sites:
        if site.line not in lines.setdefault(site.where, []):
            lines[site.where].append(site.line)
    said = [
        f"{where}, line{'s' * (len(found) > 1)} {' and '.join(map(str, found[:2]))}"
        + " and more" * (len(found) > 2)
        for where, found in lines.items()
    ]
    more = f" and {len(said) - shown} more" if len(said) > shown else ""
    return "; ".join(said[:shown]) + more
