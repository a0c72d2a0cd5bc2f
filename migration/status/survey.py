"""Looks at a tree: for each slice its phase, its proof, its commits, its flags and its shadow runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migration.burndown.gitrun import Blobs, GitError, Repository, open_git
from migration.burndown.history import Commit, read_history
from migration.code.encoding import as_utf8
from migration.code.tree import DiskTree
from migration.errors import MigrationError
from migration.proofs.record import ProofFile
from migration.proofs.verify import Broken, verify
from migration.proofs.where import proof_path
from migration.recipe import Recipe
from migration.status.evidence import Evidence, about, digest_of, find_evidence
from migration.status.flags import KINDS, creates, open_prefixes
from migration.status.known import Known, known_slices
from migration.status.phase import Phase, Standing, Unclear, proof_phase, standing
from migration.status.since import Since, first_of_each, since, start_of_run

_DEFINITION = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
_PHASE_OF = {"port": Phase.PORTED, "gate": Phase.GATED, "cleanup": Phase.CLEANED, "cut": Phase.CLEANED}


@dataclass(frozen=True)
class ProofState:
    """`holds` is what `migrate verify` says now, None where it could not be run; `reasons` say why not True."""

    path: str
    phase: str
    holds: bool | None
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Flag:
    """An environment variable that a gate in the tree reads; `since` is None where git does not tell."""

    name: str
    since: Since | None


@dataclass(frozen=True)
class SliceStatus:
    """`brought` has the commit of each phase that is in the tree and committed. `proof` is None where no proof
    file is there."""

    name: str
    recipe: Recipe | None
    named: bool
    standing: Standing | Unclear
    proof: ProofState | None
    brought: tuple[tuple[Phase, Since], ...]
    flags: tuple[Flag, ...]
    evidence: tuple[Evidence, ...]

    @property
    def seen(self) -> bool:
        """Whether anything could be looked at."""
        return isinstance(self.standing, Standing)


@dataclass(frozen=True)
class TreeStatus:
    """`git_fault` says why nothing is known of commits and dates, "" where git answered."""

    slices: tuple[SliceStatus, ...]
    git_fault: str


def survey(root: Path, names: Sequence[str], now: float) -> TreeStatus:
    """The status of the named slices, of those that come with migrate and of those with a proof file."""
    known = known_slices(root, names)
    proofs = _verified(root, [one.proof for one in known if one.proof])
    runs = find_evidence(root)
    repository, fault = None, ""
    try:
        repository = open_git(root)
    except GitError as error:
        fault = str(error)
    slices = []
    for one in known:
        try:
            slices.append(_look(root, one, proofs, runs, repository, now))
        except GitError as error:
            fault, repository = str(error), None
            slices.append(_look(root, one, proofs, runs, None, now))
    return TreeStatus(tuple(slices), fault)


def _verified(root: Path, proofs: Sequence[ProofFile]) -> dict[str, tuple[bool | None, tuple[str, ...]]]:
    """What `migrate verify` says of each slice. They are verified together: proofs of one file stack."""
    try:
        verdicts = verify(DiskTree(root), proofs)
    except MigrationError as error:
        return {proof.recipe.name: (None, (f"{error.code} {error}",)) for proof in proofs}
    return {
        verdict.proof.recipe.name: (False, verdict.reasons) if isinstance(verdict, Broken) else (True, ())
        for verdict in verdicts
    }


def _look(
    root: Path,
    one: Known,
    proofs: dict[str, tuple[bool | None, tuple[str, ...]]],
    runs: Sequence[Evidence],
    repository: Repository | None,
    now: float,
) -> SliceStatus:
    if one.recipe is None:
        state = ProofState(proof_path(one.name), "", None, (one.proof_fault,)) if one.proof_fault else None
        return SliceStatus(one.name, None, one.named, Unclear(one.why), state, (), (), ())
    recipe, tree = one.recipe, DiskTree(root)
    try:
        worker, handler = tree.read(recipe.source_file), tree.read(recipe.target_file)
    except MigrationError as error:
        return SliceStatus(one.name, recipe, one.named, Unclear(str(error)), None, (), (), ())
    path = proof_path(one.name)
    stands = standing(recipe, worker, handler, tree.read(path))
    proof = _proof_state(one, path, proofs, stands)
    if worker is None or isinstance(stands, Unclear):
        return SliceStatus(one.name, recipe, one.named, stands, proof, (), (), ())
    prefixes = open_prefixes(recipe, worker)
    brought: tuple[tuple[Phase, Since], ...] = ()
    flags = [Flag(f"{prefix}_{kind}", None) for prefix in prefixes for kind in KINDS]
    if repository is not None:
        phases, gates = _dates(repository, recipe, path, prefixes)
        brought = tuple((p, since(c, now)) for p, c in sorted(phases.items()) if p <= stands.phase)
        flags = [
            Flag(f"{prefix}_{kind}", since(commit, now) if (commit := gates[prefix]) else None)
            for prefix in prefixes
            for kind in KINDS
        ]
    mine = about(runs, prefixes or (recipe.prefix,), recipe.source_file, digest_of(root / recipe.source_file))
    return SliceStatus(one.name, recipe, one.named, stands, proof, brought, tuple(flags), tuple(mine))


def _proof_state(
    one: Known,
    path: str,
    proofs: dict[str, tuple[bool | None, tuple[str, ...]]],
    stands: Standing | Unclear,
) -> ProofState | None:
    if one.proof is None:
        return ProofState(path, "", None, (one.proof_fault,)) if one.proof_fault else None
    holds, reasons = proofs[one.name]
    phase = one.proof.phase
    if holds and isinstance(stands, Standing) and _PHASE_OF[phase] is not stands.phase:
        holds, reasons = False, (f"it is of the phase {phase}, and the tree is {stands.words}",)
    return ProofState(path, phase, holds, reasons)


def _dates(
    repository: Repository, recipe: Recipe, proof: str, prefixes: Sequence[str]
) -> tuple[dict[Phase, Commit], dict[str, Commit | None]]:
    """(the commit that brought each phase, that which brought each gate), as the commits have them."""
    history = read_history(repository, (recipe.source_file, recipe.target_file, proof))
    known: dict[tuple[object, ...], Phase | None] = {}
    states: list[tuple[Commit, Phase | None]] = []
    gates: dict[str, list[tuple[Commit, bool]]] = {prefix: [] for prefix in prefixes}
    texts: dict[str | None, bytes | None] = {None: None}
    with Blobs(repository) as blobs:
        for commit in history.commits:
            ids = [commit.blob(path) for path in (recipe.source_file, recipe.target_file, proof)]
            if ids[1] is None and not prefixes:
                states.append((commit, Phase.ABSENT))
                continue
            for identity in ids:
                if identity not in texts:
                    texts[identity] = blobs.read(identity or "")
            worker, handler, said = (texts[identity] for identity in ids)
            states.append((commit, _phase_then(recipe, ids[1], worker, handler, said, known)))
            for prefix, seen in gates.items():
                seen.append((commit, creates(worker or b"", prefix)))
    return first_of_each(states), {prefix: start_of_run(seen) for prefix, seen in gates.items()}


def _phase_then(
    recipe: Recipe,
    handler_id: str | None,
    worker: bytes | None,
    handler: bytes | None,
    proof: bytes | None,
    known: dict[tuple[object, ...], Phase | None],
) -> Phase | None:
    """The phase at a commit. A version that defines and mentions the same is not parsed again."""
    if handler is None:
        return Phase.ABSENT
    text = worker or b""
    key = (
        handler_id,
        proof_phase(proof),
        worker is None,
        tuple(_DEFINITION.findall(text)),
        *(text.count(name.encode()) for name in (recipe.handler_class, recipe.gate_name, recipe.section)),
    )
    if key not in known:
        try:
            found = standing(recipe, None if worker is None else as_utf8(worker), as_utf8(handler), proof)
        except MigrationError:
            found = Unclear("a version of the past in another encoding than it says")
        known[key] = found.phase if isinstance(found, Standing) else None
    return known[key]
