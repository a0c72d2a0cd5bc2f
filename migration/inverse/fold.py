"""`inline`: the methods of a handler folded back into the class that they were cut out of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migration.code.source import Edit, Source, apply_edits, read_source
from migration.code.structure import ClassOutline, Method, outline
from migration.inverse.hunks import Hunk, apply, difference, text_bytes, text_lines
from migration.inverse.unmove import Place, unmoved_text
from migration.move.moving import is_overload, moved_name
from migration.move.rewrite import indent_unit
from migration.recipe import Recipe


@dataclass(frozen=True)
class Inverse:
    """What has to be known beside the two files: per method (by its name in the handler) the number of
    imports at its start and the hunks that the plain inverse misses; the same for the rest of the file."""

    prologues: Mapping[str, int]
    alias: str
    methods: Mapping[str, tuple[Hunk, ...]]
    file: tuple[Hunk, ...]


@dataclass(frozen=True)
class Folded:
    """The class's file with the methods back in it, and what could not be put back where it was."""

    worker: bytes
    lost: tuple[str, ...]


def stubs_of(recipe: Recipe, shape: ClassOutline, names: Sequence[str]) -> dict[str, Method]:
    """The stubs in the class by the names of their methods in the handler."""
    found = {moved_name(m, recipe.source_class): m for m in shape.methods if not is_overload(m.node)}
    return {name: found[name] for name in names if name in found}


def learn(
    recipe: Recipe,
    before: Source,
    moved: Mapping[str, Method],
    worker: bytes,
    handler: bytes,
    prologues: Mapping[str, int],
    alias: str,
) -> Inverse:
    """The Inverse of a cut; `moved` are the original definitions by their names in the handler."""
    bare = Inverse(prologues, alias, {}, ())
    texts = _texts(recipe, worker, handler, list(moved), bare)
    hunks: dict[str, tuple[Hunk, ...]] = {}
    for name, text in texts.items():
        method = moved[name]
        start, end = before.offset(method.block_start), before.offset(method.block_end + 1)
        if found := difference(text_lines(text), text_lines(before.data[start:end])):
            hunks[name] = found
    partial = Inverse(prologues, alias, hunks, ())
    folded = fold(recipe, worker, handler, list(moved), partial).worker
    return Inverse(prologues, alias, hunks, difference(text_lines(folded), text_lines(before.data)))


def fold(recipe: Recipe, worker: bytes, handler: bytes, names: Sequence[str], inverse: Inverse) -> Folded:
    """The worker file with the methods `names` (as the handler calls them) in place of their stubs."""
    after = read_source(recipe.source_file, worker)
    stubs = stubs_of(recipe, outline(after, recipe.source_class), names)
    lost: list[str] = []
    edits: list[Edit] = []
    for name, text in _texts(recipe, worker, handler, names, inverse).items():
        lines, missing = apply(text_lines(text), inverse.methods.get(name, ()))
        lost += [f"{name}: {_shown(hunk)}" for hunk in missing]
        stub = stubs[name]
        start, end = after.offset(stub.block_start), after.offset(stub.block_end + 1)
        edits.append(Edit(start, end, text_bytes(lines)))
    lines, missing = apply(text_lines(apply_edits(worker, edits)), inverse.file)
    lost += [f"{recipe.source_file}: {_shown(hunk)}" for hunk in missing]
    return Folded(text_bytes(lines), tuple(lost))


def _texts(
    recipe: Recipe, worker: bytes, handler: bytes, names: Sequence[str], inverse: Inverse
) -> dict[str, bytes]:
    after, new = read_source(recipe.source_file, worker), read_source(recipe.target_file, handler)
    there = {m.name: m for m in outline(new, recipe.handler_class).methods}
    stubs = stubs_of(recipe, outline(after, recipe.source_class), names)
    texts: dict[str, bytes] = {}
    for name, stub in stubs.items():
        base = after.indent_of(stub.first_line)
        unit = indent_unit(after, stub.node, base.decode()).encode()
        place = Place(stub.name, base, unit, after.eol)
        alias = inverse.alias if inverse.prologues.get(name) else None
        texts[name] = unmoved_text(new, there[name], recipe, place, inverse.prologues.get(name, 0), alias)
    return texts


def _shown(hunk: Hunk) -> str:
    text = next((line.strip() for line in (*hunk.new, *hunk.old) if line.strip()), "a blank line")
    return f"no place for {text!r}"
