"""The slices that a status or a history is about: those of the package, of the proof files, and named ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migration import slices
from migration.errors import MigrationError
from migration.proofs.record import ProofFile, loads
from migration.proofs.where import FOLDER, SUFFIX
from migration.recipe import Recipe
from migration.slices import load_recipe


@dataclass(frozen=True)
class Known:
    """One slice. `recipe` is None where its file is wrong, and `why` says how. `named` on the command line.

    `proof` is its proof file; `proof_fault` says why there is a file that cannot be read.
    """

    name: str
    recipe: Recipe | None
    why: str
    named: bool
    proof: ProofFile | None
    proof_fault: str


def known_slices(root: Path, names: Sequence[str]) -> tuple[Known, ...]:
    """The named slices first, then those that come with migrate, then those of other proof files."""
    packaged = sorted(file.stem for file in Path(slices.__file__).parent.glob("*.toml"))
    proofs, faults = _proofs(root)
    found: dict[str, Known] = {}
    for name in (*names, *packaged):
        recipe, why = None, ""
        try:
            recipe = load_recipe(name)
        except MigrationError as error:
            why = f"{error.code} {error}"
        key = recipe.name if recipe else name
        found.setdefault(key, Known(key, recipe, why, name in names, proofs.get(key), faults.get(key, "")))
    for key, proof in proofs.items():
        found.setdefault(key, Known(key, proof.recipe, "", False, proof, ""))
    for key, fault in faults.items():
        found.setdefault(
            key, Known(key, None, "its recipe is known only from its proof file", False, None, fault)
        )
    return tuple(found.values())


def _proofs(root: Path) -> tuple[dict[str, ProofFile], dict[str, str]]:
    """(proofs by slice, what is wrong with a file by the slice it is named after)."""
    found, faults = {}, {}
    for file in sorted((root / FOLDER).glob(f"*{SUFFIX}")):
        try:
            proof = loads(file.read_bytes(), file.name)
        except MigrationError as error:
            faults[file.name.removesuffix(SUFFIX)] = f"{error.code} {error}"
        else:
            found[proof.recipe.name] = proof
    return found, faults
