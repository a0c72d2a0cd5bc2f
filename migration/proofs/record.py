"""The proof file of one cut: JSON in `.migrate/<slice>.proof.json`, committed with the change.

It holds the recipe, the digests of both files before and after, the declared differences of each moved
method, and what is needed beside the files to restore the original to the byte.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from migration.code.source import read_source
from migration.code.structure import outline
from migration.code.tree import Tree
from migration.errors import MigrationError
from migration.inverse.fold import Inverse, learn, stubs_of
from migration.inverse.hunks import Hunk, difference, text_lines
from migration.ledger.change import FileChange
from migration.move.cut import CutPlan
from migration.move.proof import MethodProof, Proof
from migration.phases.cleanup import CleanupPlan
from migration.phases.gate import GatePlan
from migration.phases.port import PortPlan
from migration.proofs.where import proof_path
from migration.recipe import AdapterEntry, HandleSpec, HasattrSpec, Recipe, RewriteSpec, SnapshotSpec

SCHEMA = 1


@dataclass(frozen=True)
class ProofFile:
    """`phase` is cut, port, gate or cleanup. `before` and `after` are SHA-256 of the class's file, `handler`
    that of the handler module; `created` are package files that the phase added; `dropped` are delegates
    that cleanup removed, `delegates` the hunks that put them back. `generated` are the adapters and fakes as
    they were written, `human` the files written by hand as they were then: (path, SHA-256). `part` is the letter of a
    port that is one of several."""

    phase: str
    recipe: Recipe
    before: str
    after: str
    handler: str
    created: tuple[str, ...]
    proof: Proof
    inverse: Inverse
    dropped: tuple[str, ...] = ()
    delegates: tuple[Hunk, ...] = ()
    generated: tuple[tuple[str, str], ...] = ()
    human: tuple[tuple[str, str], ...] = ()
    part: str = ""

    @property
    def path(self) -> str:
        return proof_path(self.recipe.name)

    @property
    def names(self) -> tuple[str, ...]:
        """The moved methods by their names in the handler."""
        return tuple(detail.moved_name for detail in self.proof.details)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record(plan: CutPlan) -> ProofFile:
    """The proof file of a one-step cut that is about to be written."""
    recipe = plan.recipe
    files = {change.path: change for change in plan.changes}
    worker, handler = files[recipe.source_file], files[recipe.target_file]
    assert worker.before is not None and worker.after is not None and handler.after is not None
    return ProofFile(
        "cut",
        recipe,
        digest(worker.before),
        digest(worker.after),
        digest(handler.after),
        _created(plan),
        plan.proof,
        _inverse(plan),
        generated=_generated(plan),
        human=plan.human,
    )


def record_port(plan: PortPlan, tree: Tree) -> ProofFile:
    worker = tree.read(plan.recipe.source_file)
    handler = next(change.after for change in plan.changes if change.path == plan.recipe.target_file)
    assert worker is not None and handler is not None
    own = digest(worker)
    recipe = plan.cut.recipe
    return ProofFile(
        "port",
        recipe,
        own,
        own,
        digest(handler),
        _created(plan.cut),
        plan.cut.proof,
        _NO_INVERSE,
        generated=_generated(plan.cut),
        human=plan.cut.human,
        part=plan.part,
    )


def record_gate(plan: GatePlan, tree: Tree) -> ProofFile:
    (worker,) = plan.changes
    handler = tree.read(plan.recipe.target_file)
    assert worker.before is not None and worker.after is not None and handler is not None
    before, after = digest(worker.before), digest(worker.after)
    return ProofFile(
        "gate",
        plan.recipe,
        before,
        after,
        digest(handler),
        (),
        plan.cut.proof,
        _NO_INVERSE,
        generated=_generated(plan.cut),
        human=plan.cut.human,
    )


def record_cleanup(plan: CleanupPlan, tree: Tree) -> ProofFile:
    (worker,) = plan.changes
    handler = tree.read(plan.recipe.target_file)
    cut = next(change.after for change in plan.cut.changes if change.path == plan.recipe.source_file)
    assert worker.before is not None and worker.after is not None and handler is not None and cut is not None
    return ProofFile(
        "cleanup",
        plan.recipe,
        digest(worker.before),
        digest(worker.after),
        digest(handler),
        (),
        plan.cut.proof,
        _inverse(plan.cut),
        plan.dropped,
        difference(text_lines(worker.after), text_lines(cut)),
        _generated(plan.cut),
        plan.cut.human,
    )


_NO_INVERSE = Inverse({}, "", {}, ())


def _created(plan: CutPlan) -> tuple[str, ...]:
    paths = (change.path for change in plan.changes)
    return tuple(path for path in paths if path not in (plan.recipe.source_file, plan.recipe.target_file))


def _generated(plan: CutPlan) -> tuple[tuple[str, str], ...]:
    """What stands beside the handler, as this cut writes it: not as somebody may have edited it by now."""
    after = {change.path: change.after for change in plan.changes}
    return tuple((path, digest(after[path] or b"")) for path in plan.recipe.generated)


def _inverse(plan: CutPlan) -> Inverse:
    recipe = plan.recipe
    files = {change.path: change for change in plan.changes}
    worker, handler = files[recipe.source_file], files[recipe.target_file]
    assert worker.before is not None and worker.after is not None and handler.after is not None
    before = read_source(recipe.source_file, worker.before)
    names = [detail.moved_name for detail in plan.proof.details]
    moved = stubs_of(recipe, outline(before, recipe.source_class), names)
    prologues = {
        detail.moved_name: count
        for detail in plan.proof.details
        if (count := bool(detail.lazy_imports) + bool(detail.late_reads))
    }
    return learn(recipe, before, moved, worker.after, handler.after, prologues, plan.proof.alias)


def proof_change(proof: ProofFile, existing: bytes | None) -> FileChange:
    return FileChange(proof.path, existing, dumps(proof))


def dumps(proof: ProofFile) -> bytes:
    body: dict[str, Any] = {"schema": SCHEMA, **dataclasses.asdict(proof)}
    inverse = body["inverse"]
    inverse["methods"] = {name: [_slim(hunk) for hunk in hunks] for name, hunks in inverse["methods"].items()}
    inverse["file"] = [_slim(hunk) for hunk in inverse["file"]]
    body["delegates"] = [_slim(hunk) for hunk in body["delegates"]]
    if not proof.part:
        del body["part"]
    return (_layout(body, 0) + "\n").encode()


def _layout(value: Any, depth: int) -> str:
    """JSON with one line for each method and each hunk, so that a reviewer can read a diff of it."""
    flat = json.dumps(value, ensure_ascii=True)
    if depth == 3 or len(flat) <= 100 or not isinstance(value, dict | list | tuple):
        return flat
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{pad}{json.dumps(key)}: {_layout(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{' ' * depth}}}"
    parts = [pad + _layout(item, depth + 1) for item in value]
    return "[\n" + ",\n".join(parts) + f"\n{' ' * depth}]"


def _slim(hunk: Mapping[str, Any]) -> list[Any]:
    return [hunk["line"], hunk["before"], list(hunk["old"]), list(hunk["new"]), hunk["after"]]


def loads(data: bytes, where: str) -> ProofFile:
    """The proof file in `data`; MG110 where it is not one that this version wrote."""
    try:
        body = json.loads(data)
        if body["schema"] != SCHEMA:
            raise MigrationError("MG110", f"{where}: schema {body['schema']}, this version reads {SCHEMA}")
        return ProofFile(
            body["phase"],
            _recipe(body["recipe"]),
            body["before"],
            body["after"],
            body["handler"],
            tuple(body["created"]),
            _proof(body["proof"]),
            Inverse(
                body["inverse"]["prologues"],
                body["inverse"]["alias"],
                {name: tuple(map(_hunk, found)) for name, found in body["inverse"]["methods"].items()},
                tuple(map(_hunk, body["inverse"]["file"])),
            ),
            tuple(body["dropped"]),
            tuple(map(_hunk, body["delegates"])),
            tuple((path, known) for path, known in body.get("generated", ())),
            tuple((path, known) for path, known in body.get("human", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MigrationError("MG110", f"{where}: not a proof file: {error!r}") from error


def _hunk(entry: list[Any]) -> Hunk:
    line, before, old, new, after = entry
    return Hunk(line, before, tuple(old), tuple(new), after)


def _recipe(entry: Mapping[str, Any]) -> Recipe:
    handles = tuple(HandleSpec(**_tuples(handle)) for handle in entry["handles"])
    rewrites = tuple(RewriteSpec(**rewrite) for rewrite in entry.get("rewrites", ()))
    effects = tuple((method, effect) for method, effect in entry["effects"])
    snapshot = entry.get("snapshot") and SnapshotSpec(**_tuples(entry["snapshot"]))
    asked = entry.get("hasattr") and _hasattr(entry["hasattr"])
    adapters = tuple(_adapter(adapter) for adapter in entry.get("adapters", ()))
    fields = {
        "handles": handles,
        "effects": effects,
        "parts": tuple((part, tuple(names)) for part, names in entry.get("parts", ())),
        "rewrites": rewrites,
        "snapshot": snapshot,
        "adapters": adapters,
        "hasattr": asked,
    }
    return Recipe(**{**_tuples(entry), **fields})


def _hasattr(entry: Mapping[str, Any]) -> HasattrSpec:
    pairs = {name: tuple(map(tuple, entry.get(name, ()))) for name in ("places", "accept")}
    return HasattrSpec(**{**_tuples(entry), **pairs})


def _adapter(entry: Mapping[str, Any]) -> AdapterEntry:
    members = tuple(
        (member, to, tuple((own, wrapped) for own, wrapped in parameters))
        for member, to, parameters in entry["members"]
    )
    return AdapterEntry(**{**entry, "members": members})


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


def _proof(entry: Mapping[str, Any]) -> Proof:
    details = tuple(
        MethodProof(
            d["name"],
            d["moved_name"],
            d["key"],
            d["body"],
            tuple((name, count) for name, count in d["renames"]),
            tuple(d["lazy_imports"]),
            tuple(d["late_reads"]),
            tuple((kind, count) for kind, count in d["rewrites"]),
            tuple((before, after, count) for before, after, count in d.get("declared", ())),
        )
        for d in entry["details"]
    )
    return Proof(
        details, tuple(entry["imports_removed"]), entry["alias"], entry["comments"], entry["bytes_untouched"]
    )
