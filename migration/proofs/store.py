"""Finding proof files in a repository."""

from __future__ import annotations

from pathlib import Path

from migration.errors import MigrationError
from migration.proofs.record import ProofFile, loads
from migration.proofs.where import FOLDER, SUFFIX, proof_path


def load_proof(root: Path, name: str) -> ProofFile:
    """The proof file of a slice by its name, or by the path of the file; MG110 when there is none."""
    path = Path(name) if name.endswith(SUFFIX) else root / proof_path(name)
    if not path.is_file():
        known = ", ".join(file.name.removesuffix(SUFFIX) for file in _files(root)) or "none"
        raise MigrationError("MG110", f"{path} does not exist; proofs here: {known}")
    return loads(path.read_bytes(), str(path))


def load_all(root: Path) -> list[ProofFile]:
    """Every proof file of the repository; MG110 when there is none: nothing verified is no success."""
    found = known_proofs(root)
    if not found:
        raise MigrationError("MG110", f"no {FOLDER}/*{SUFFIX} in {root}")
    return found


def known_proofs(root: Path) -> list[ProofFile]:
    """Every proof file of the repository, where there are any."""
    return [loads(file.read_bytes(), str(file)) for file in _files(root)]


def _files(root: Path) -> list[Path]:
    return sorted((root / FOLDER).glob(f"*{SUFFIX}"))
