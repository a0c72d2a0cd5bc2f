"""What the names of a module stand for: imports with their origin, functions, classes, variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from migration.code.facts import dotted

_GLOBAL = re.compile(rb"^(?:.*[:;])?[ \t\f]*global\s", re.MULTILINE)
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class ModuleNames:
    """Module-level bindings.

    `origins` maps an imported name, or a module-level alias of one, to what it means, dotted
    (`Attn` -> `engine.attention.AttnWrapperBase`). `rebound` are the variables that a function
    rebinds with `global`. `repeated` are names with more than one binding: which holds is not certain.
    """

    origins: dict[str, str]
    functions: frozenset[str]
    classes: frozenset[str]
    variables: frozenset[str]
    rebound: frozenset[str]
    repeated: frozenset[str]

    @property
    def own(self) -> frozenset[str]:
        """Names that the module defines itself."""
        return self.functions | self.classes | self.variables


def module_names(tree: ast.Module, data: bytes) -> ModuleNames:
    """Bindings of a module. `data` is its text: without a `global` in it no function is looked at."""
    origins: dict[str, str] = {}
    functions: set[str] = set()
    classes: set[str] = set()
    variables: set[str] = set()
    seen: set[str] = set()
    repeated: set[str] = set()
    aliases: list[tuple[str, str]] = []
    for statement in module_level(tree.body):
        bound: list[str] = []
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found = import_origins(statement)
            origins.update(found)
            bound = list(found)
        elif isinstance(statement, _DEFINITIONS):
            (classes if isinstance(statement, ast.ClassDef) else functions).add(statement.name)
            bound = [statement.name]
        else:
            bound = list(bound_names(statement))
            variables.update(bound)
            if isinstance(statement, ast.Assign) and (path := dotted(statement.value)):
                aliases += [(t.id, path) for t in statement.targets if isinstance(t, ast.Name)]
        repeated.update(name for name in bound if name in seen)
        seen.update(bound)
    for name, path in aliases:
        root, _, rest = path.partition(".")
        if root in origins and name not in repeated:
            origins[name] = f"{origins[root]}.{rest}" if rest else origins[root]
            variables.discard(name)
    rebound: set[str] = set()
    if _GLOBAL.search(data):
        rebound = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    return ModuleNames(
        origins,
        frozenset(functions),
        frozenset(classes),
        frozenset(variables | rebound),
        frozenset(rebound),
        frozenset(repeated),
    )


def module_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported, in order, the compound ones before what they hold."""
    for statement in body:
        yield statement
        if not isinstance(statement, _DEFINITIONS):
            for field in ("body", "orelse", "finalbody"):
                yield from module_level(getattr(statement, field, ()))
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                yield from module_level(part.body)


def import_origins(statement: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Each name that an import binds, with what it means; a relative one keeps its leading dots."""
    if isinstance(statement, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: alias.name
            if alias.asname
            else alias.name.partition(".")[0]
            for alias in statement.names
        }
    base = "." * statement.level + (statement.module or "")
    joint = "" if base.endswith(".") or not base else "."
    return {
        alias.asname or alias.name: f"{base}{joint}{alias.name}"
        for alias in statement.names
        if alias.name != "*"
    }


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Names that one statement binds by itself, without the statements that it holds."""
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target] if statement.value is not None else []
    elif isinstance(statement, ast.AugAssign | ast.For | ast.AsyncFor):
        targets = [statement.target]
    elif isinstance(statement, ast.With | ast.AsyncWith):
        targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
    else:
        targets = []
    for target in targets:
        yield from (
            node.id
            for node in ast.walk(target)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
