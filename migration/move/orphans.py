"""Imports of the worker that only the moved code used: removed where nobody else can miss them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping

from migration.code.source import Edit, Source, apply_edits, read_source
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
    moved_names: Collection[str],
) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """(worker bytes, names removed, notes on the names kept).

    An import stays when the handler takes the name from the worker, when another file that mentions
    the worker mentions the name, when it is conditional or shares its line with anything, or when
    only its side effect would be lost (the handler does not run it).
    """
    source = read_source(before.path, cut)
    candidates = {
        alias.asname or alias.name: (node, alias)
        for node in source.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    unused = _unused(source, candidates, set(moved_names))
    elsewhere = mentions().borrowed(unused) if unused else {}
    moved = {item.bound for item in runtime}
    doomed: dict[ast.stmt, list[ast.alias]] = {}
    removed: list[str] = []
    notes: list[str] = []
    for local in sorted(unused):
        reason = None
        if local in lazy:
            continue
        if local in elsewhere:
            reason = f"{elsewhere[local]} may take it from there"
        elif local.partition(".")[0] not in moved:
            reason = "the handler does not run this import"
        elif not _stands_alone(source, candidates[local][0]):
            reason = "the import shares its lines with something else"
        if reason is None:
            node, alias = candidates[local]
            doomed.setdefault(node, []).append(alias)
            removed.append(local)
        else:
            notes.append(f"{recipe.source_file} no longer uses {local}, kept: {reason}")
    edits = [edit for node, aliases in doomed.items() for edit in _removal(source, node, aliases)]
    return apply_edits(cut, edits), tuple(removed), tuple(notes)


def _unused(
    source: Source, candidates: Mapping[str, tuple[ast.stmt, ast.alias]], moved_names: Collection[str]
) -> set[str]:
    """Imports that moved code used and that nothing in the file mentions any more, comments aside."""
    wanted = {local for local in candidates if local.partition(".")[0] in moved_names}
    if not wanted:
        return wanted
    taken: set[int] = set()
    for node, _ in candidates.values():
        taken.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    comments = {comment.line: comment.text.encode() for comment in source.comments}
    words = b"|".join(re.escape(local.partition(".")[0].encode()) for local in sorted(wanted))
    used: set[bytes] = set()
    for match in re.finditer(rb"\b(?:%b)\b" % words, source.data):
        if match[0] in used:
            continue
        number, _ = source.place(match.start())
        line = source.lines[number - 1]
        code = line.replace(comments.get(number, b"\0"), b"")
        importing = number in taken or line.lstrip().startswith((b"from ", b"import "))
        if not importing and re.search(rb"\b%b\b" % re.escape(match[0]), code):
            used.add(match[0])
    return {local for local in wanted if local.partition(".")[0].encode() not in used}


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
