"""`migrate cleanup`: legacy bodies and gates go; a delegate stays only where somebody else may call it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migration.code.source import Edit, Source, apply_edits, read_source
from migration.code.structure import Method, outline
from migration.code.tree import Tree
from migration.errors import Refusal
from migration.inverse.fold import stubs_of
from migration.ledger.change import FileChange
from migration.move.by_hand import missing_by_hand
from migration.move.cut import CutPlan, CutRefused
from migration.move.route import route_refusals
from migration.phases.gate_text import gated
from migration.phases.hand_written import worker_mentions, written_around
from migration.phases.state import cut_anew, drift, read_worker, ungated
from migration.recipe import Recipe


@dataclass(frozen=True)
class CleanupPlan:
    """`kept` are (delegate, who may call it); `dropped` are methods that are gone from the class, by their
    names in the handler."""

    recipe: Recipe
    methods: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    dropped: tuple[str, ...]
    changes: tuple[FileChange, ...]
    cut: CutPlan


@dataclass(frozen=True)
class CleanupRefused:
    recipe: Recipe
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class CleanupClean:
    recipe: Recipe


def plan_cleanup(recipe: Recipe, tree: Tree) -> CleanupPlan | CleanupRefused | CleanupClean:
    """Plan and verify the last phase: the result is the one-step cut less the delegates that nobody calls."""
    source = read_worker(recipe, tree)
    shape = outline(source, recipe.source_class)
    if not gated(shape, recipe):
        if tree.read(recipe.target_file) is not None and recipe.served[1].encode() in source.data:
            return CleanupClean(recipe)
        return _refused(recipe, "MG114", "the slice is not gated")
    original = ungated(recipe, source)
    cut = cut_anew(recipe, tree, original)
    if isinstance(cut, CutRefused):
        return CleanupRefused(recipe, cut.refusals)
    if not isinstance(cut, CutPlan):
        return _refused(recipe, "MG114", "without its gates the class has stubs already")
    if found := drift(recipe, tree, cut):
        return CleanupRefused(recipe, found)
    worker = next(change.after for change in cut.changes if change.path == recipe.source_file)
    assert worker is not None
    after = read_source(recipe.source_file, worker)
    names = [d.moved_name for d in cut.proof.details]
    stubs = stubs_of(recipe, outline(after, recipe.source_class), names)
    callers = _callers(recipe, tree, after, stubs)
    dropped = tuple(name for name, stub in stubs.items() if stub.name not in callers)
    left = [name for name in stubs if name not in dropped]
    if missing := (*missing_by_hand(recipe, tree), *route_refusals(recipe, tree, left)):
        return CleanupRefused(recipe, missing)
    final = without_delegates(recipe, worker, dropped)
    compile(final, recipe.source_file, "exec", dont_inherit=True)
    changes = (FileChange(recipe.source_file, source.data, final),)
    return CleanupPlan(
        recipe,
        tuple(d.name for d in cut.proof.details),
        tuple(sorted(callers.items())),
        dropped,
        changes,
        cut,
    )


def _refused(recipe: Recipe, code: str, message: str) -> CleanupRefused:
    return CleanupRefused(recipe, (Refusal(code, recipe.source_file, 0, message),))


def _callers(recipe: Recipe, tree: Tree, worker: Source, stubs: Mapping[str, Method]) -> dict[str, str]:
    """name -> a place that may need its delegate; `stubs` are by the names that the handler has for them.

    Text decides: a false hit only keeps a delegate.
    """
    found = {
        stub.name: "public" if not stub.name.startswith("_") else "Python itself"
        for stub in stubs.values()
        if not stub.name.startswith("_") or stub.name.endswith("__") or stub.node.decorator_list
    }
    # A private name is spelled as Python mangles it everywhere but in the class.
    spellings = {
        word: stub.name
        for name, stub in stubs.items()
        if stub.name not in found
        for word in (name, stub.name)
    }
    if not spellings:
        return found
    words = b"|".join(re.escape(word).encode() for word in sorted(spellings))
    mention = re.compile(rb"\b(?:" + words + rb")\b")
    inside = [range(stub.block_start, stub.block_end + 1) for stub in stubs.values()]
    around = written_around(recipe, tree)
    for path in tree.python_files():
        data = worker.data if path == recipe.source_file else tree.read(path) or b""
        if path in around:
            for word, number in worker_mentions(data, recipe, spellings):
                found.setdefault(spellings[word], f"{path}:{number}")
            continue
        if path == recipe.target_file:
            mention_here = _through_handles(recipe, words)
        else:
            mention_here = mention
        for match in mention_here.finditer(data):
            number = data.count(b"\n", 0, match.start()) + 1
            if path != recipe.source_file or not any(number in block for block in inside):
                found.setdefault(spellings[match[match.lastindex or 0].decode()], f"{path}:{number}")
    return found


def _through_handles(recipe: Recipe, words: bytes) -> re.Pattern[bytes]:
    """How the handler itself speaks of a method of the worker: through a handle, or by its name as a string."""
    handles = b"|".join(re.escape(f"._{handle.name}").encode() for handle in recipe.handles)
    return re.compile(rb"(?:%b)\.(%b)\b|[\"'](%b)[\"']" % (handles, words, words))


def without_delegates(recipe: Recipe, worker: bytes, names: Sequence[str]) -> bytes:
    """The class's file without the delegates of `names` (as the handler calls them)."""
    source = read_source(recipe.source_file, worker)
    stubs = stubs_of(recipe, outline(source, recipe.source_class), names)
    return apply_edits(worker, [_removal(source, stub) for stub in stubs.values()])


def _removal(source: Source, stub: Method) -> Edit:
    """The stub with one of the blank lines around it."""
    start, end = source.offset(stub.block_start), source.offset(stub.block_end + 1)
    blank = re.match(rb"[ \t]*(?:\r\n|\r|\n)", source.data[end:])
    return Edit(start, end + (blank.end() if blank else 0), b"")
