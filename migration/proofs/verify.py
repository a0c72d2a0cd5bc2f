"""Check a working tree against its proof files: slices stack, and each restores what an older one left.

Which is the next older one the digests tell. A proof file keeps the last phase of its slice, so that a clean-up
that is taken back leaves the gates of the slice in the file; when these came, before or after the phases of
other slices, nothing says. But gates can be taken out in any order and leave the same bytes: an older proof
holds for the state that has its digest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from migration.code.source import read_source
from migration.code.tree import OverlayTree, Tree
from migration.phases.state import before_cut, ungated
from migration.proofs.record import ProofFile, digest
from migration.proofs.single import Broken, Verdict, Verified, verify_single
from migration.recipe import Recipe

__all__ = ["Broken", "Restored", "Verdict", "Verified", "is_behind", "verify"]


@dataclass(frozen=True)
class Restored:
    """A state of a class's file. `gates` are slices whose clean-up has been taken back, so that it has their
    gates again."""

    data: bytes
    gates: tuple[Recipe, ...] = ()

    def earlier(self, wanted: Collection[str]) -> Restored | None:
        """The nearest state, this one or one without some of `gates`, whose SHA-256 is among `wanted`."""
        for count in range(len(self.gates) + 1):
            for out in combinations(self.gates, count):
                data = self.data
                for recipe in out:
                    data = ungated(recipe, read_source(recipe.source_file, data))
                if digest(data) in wanted:
                    return Restored(data, tuple(recipe for recipe in self.gates if recipe not in out))
        return None


@dataclass(frozen=True)
class _Stack:
    """What is `left` to be taken back of the `states` that were reached, by file; `gone` was taken back."""

    tree: Tree
    left: tuple[ProofFile, ...]
    states: Mapping[str, Restored] = field(default_factory=dict)
    gone: tuple[Recipe, ...] = ()

    def tops(self) -> list[tuple[ProofFile, Restored]]:
        """The proofs that the files are in the state of. A port leaves the state as it is, so that it comes
        before the proof of what brought the state about."""
        found: list[tuple[ProofFile, Restored]] = []
        for path in dict.fromkeys(proof.recipe.source_file for proof in self.left):
            mine = [proof for proof in self.left if proof.recipe.source_file == path]
            if state := self._state(path).earlier({proof.after for proof in mine}):
                found += [(proof, state) for proof in mine if proof.after == digest(state.data)]
        return sorted(found, key=lambda top: top[0].phase != "port")

    def _state(self, path: str) -> Restored:
        return self.states.get(path) or Restored(self.tree.read(path) or b"")

    def judge(self, proof: ProofFile, state: Restored) -> Verdict:
        """First without the handlers of newer slices, then with them: they may have been ported before this
        phase was, and other files count where a name is looked for in all of them."""
        states = {**self.states, proof.recipe.source_file: state}
        tree: Tree = OverlayTree(self.tree, {path: known.data for path, known in states.items()})
        gated = {recipe.name for known in states.values() for recipe in known.gates}
        alone = tree
        for recipe in self.gone:
            if recipe.name not in gated:
                alone = before_cut(recipe, alone)
        verdict = verify_single(alone, proof)
        if isinstance(verdict, Broken) and alone is not tree:
            verdict = verify_single(tree, proof)
        if isinstance(verdict, Broken):
            return verdict
        gates = (*state.gates, proof.recipe) if proof.phase == "cleanup" else state.gates
        return dataclasses.replace(verdict, gates=gates)

    def without(self, verdict: Verified) -> _Stack:
        """One slice taken back."""
        proof, recipe = verdict.proof, verdict.proof.recipe
        left = tuple(other for other in self.left if other is not proof)
        states = {**self.states, recipe.source_file: Restored(verdict.original, verdict.gates)}
        return _Stack(self.tree, left, states, (*self.gone, recipe))

    def stuck(self, tops: Sequence[Verdict]) -> list[Verdict]:
        """Why what is left cannot be reached; `tops` are the verdicts of those that could."""
        tree = OverlayTree(self.tree, {path: known.data for path, known in self.states.items()})
        found: list[Verdict] = []
        for proof in self.left:
            path = proof.recipe.source_file
            newer = [top.proof.recipe.name for top in tops if top.proof.recipe.source_file == path]
            why = ""
            if newer:
                why = f"{path} cannot be restored to what it left: {', '.join(newer)} came later and must hold first"
            elif path in self.states:
                why = f"no proof file restores {path} to what it left"
            if proof not in [top.proof for top in tops]:
                found.append(verify_single(tree, proof, why))
        return found


def verify(
    tree: Tree, proofs: Sequence[ProofFile], wanted: Collection[str] | None = None
) -> tuple[Verdict, ...]:
    """Verdicts, newest first for proofs of one file: of all proofs, or until those of the slices `wanted` are
    among them."""
    stack = _Stack(tree, tuple(proofs))
    names = {proof.recipe.name for proof in proofs} if wanted is None else set(wanted)
    found: list[Verdict] = []
    while names & {proof.recipe.name for proof in stack.left}:
        broken: list[Verdict] = []
        for proof, state in stack.tops():
            verdict = stack.judge(proof, state)
            if isinstance(verdict, Verified):
                stack = stack.without(verdict)
                found.append(verdict)
                break
            broken.append(verdict)
        else:
            return (*found, *broken, *stack.stuck(broken))
    return tuple(found)


def is_behind(verdict: Verified, data: bytes) -> bool:
    """Whether the slice, taken back, can leave the class's file as `data`: it was so when it landed."""
    return Restored(verdict.original, verdict.gates).earlier({digest(data)}) is not None
