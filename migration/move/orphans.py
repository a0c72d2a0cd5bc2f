"""Imports of the worker that only the moved code used: removed where nobody else can miss them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection

from migration.code.flakes import flakes
from migration.code.source import Edit, Source, apply_edits
from migration.move.names import ImportName
from migration.move.usage import Mentions
from migration.recipe import Recipe


def remove_orphans(
    mentions: Callable[[], Mentions],
    recipe: Recipe,
    before: Source,
    cut: bytes,
    runtime: Collection[ImportName],
    lazy: Collection[str],
) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """(worker bytes, names removed, notes on the names kept).

    An import stays when the handler takes the name from the worker, when another file that mentions
    the worker mentions the name, when it is conditional or shares its line with anything, or when
    only its side effect would be lost (the handler does not run it).
    """
    known = flakes(before.data, before.path)
    unused = {flake.name for flake in (flakes(cut, before.path) - known) if flake.kind == "UnusedImport"}
    source = Source(before.path, cut)
    candidates = {
        _flake_name(node, alias): (node, alias)
        for node in source.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    bound = {
        name: candidates[name][1].asname or candidates[name][1].name for name in unused & candidates.keys()
    }
    elsewhere = mentions().borrowed(set(bound.values())) if bound else {}
    moved = {item.bound for item in runtime}
    doomed: dict[ast.stmt, list[ast.alias]] = {}
    removed: list[str] = []
    notes: list[str] = []
    for name in sorted(unused):
        reason = None
        local = bound.get(name, name)
        if local in lazy:
            continue
        if name not in candidates:
            reason = "its import is conditional"
        elif local in elsewhere:
            reason = f"{elsewhere[local]} may take it from there"
        elif local.partition(".")[0] not in moved:
            reason = "the handler does not run this import"
        elif not _stands_alone(source, candidates[name][0]):
            reason = "the import shares its lines with something else"
        if reason is None:
            node, alias = candidates[name]
            doomed.setdefault(node, []).append(alias)
            removed.append(local)
        else:
            notes.append(f"{recipe.source_file} no longer uses {local}, kept: {reason}")
    edits = [edit for node, aliases in doomed.items() for edit in _removal(source, node, aliases)]
    return apply_edits(cut, edits), tuple(removed), tuple(notes)


def _flake_name(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The name under which pyflakes reports an unused import."""
    prefix = ""
    if isinstance(node, ast.ImportFrom):
        prefix = "." * node.level + (node.module or "")
        prefix += "" if prefix.endswith(".") else "."
    renamed = f" as {alias.asname}" if alias.asname and alias.asname != alias.name else ""
    return f"{prefix}{alias.name}{renamed}"


def _stands_alone(source: Source, node: ast.stmt) -> bool:
    first, last = node.lineno, node.end_lineno or node.lineno
    shared = [other for other in source.tree.body if other is not node and first <= other.lineno <= last]
    return not shared and not any(first <= comment.line <= last for comment in source.comments)


def _removal(source: Source, node: ast.stmt, aliases: list[ast.alias]) -> list[Edit]:
    assert isinstance(node, ast.Import | ast.ImportFrom)
    if len(aliases) == len(node.names):
        return [Edit(source.offset(node.lineno), source.offset((node.end_lineno or node.lineno) + 1), b"")]
    kept = [index for index, alias in enumerate(node.names) if alias not in aliases]
    edits: list[Edit] = []
    for index, alias in enumerate(node.names):
        if alias in aliases and index < kept[-1]:
            following = node.names[index + 1]
            edits.append(Edit(_start(source, alias), _start(source, following), b""))
    if kept[-1] < len(node.names) - 1:
        edits.append(Edit(_end(source, node.names[kept[-1]]), _end(source, node.names[-1]), b""))
    return edits


def _start(source: Source, alias: ast.alias) -> int:
    return source.offset(alias.lineno, alias.col_offset)


def _end(source: Source, alias: ast.alias) -> int:
    return source.offset(alias.end_lineno or alias.lineno, alias.end_col_offset or 0)
