"""Taking back the last write, byte for byte, if its files are still as it left them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from migration.errors import Refusal
from migration.ledger.change import FileChange
from migration.ledger.disk import digest, read
from migration.ledger.journal import commit
from migration.ledger.records import Touched, UndoRecord, newest
from migration.ledger.staging import Transaction, place


@dataclass(frozen=True)
class UndoPlan:
    """`record` can be taken back; files that are already as before it are not among the changes."""

    record: UndoRecord
    changes: tuple[FileChange, ...]


@dataclass(frozen=True)
class UndoRefused:
    """One refusal for each file that changed since the write."""

    record: UndoRecord
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class NothingToUndo:
    pass


def plan_undo(root: Path) -> UndoPlan | UndoRefused | NothingToUndo:
    """What `undo` would do with the newest record. Raises MG310 if the record is damaged."""
    record = newest(root)
    return plan_undo_of(root, record) if record else NothingToUndo()


def plan_undo_of(root: Path, record: UndoRecord) -> UndoPlan | UndoRefused:
    """What taking `record` back would mean now, were it the newest."""
    refusals, changes = [], []
    # Backwards: what a write made first, others may need longest.
    for index, file in reversed(list(enumerate(record.files))):
        now = read(place(root, file.path)[0])
        found, old = digest(now), record.old_bytes(index)
        if found not in (file.old, file.new):
            kept = f"; before the write: {record.folder / str(index)}" if file.old else ""
            refusals.append(Refusal("MG308", file.path, 0, _difference(file, now) + kept))
        elif found != file.old:
            changes.append(FileChange(file.path, now, old))
    if refusals:
        return UndoRefused(record, tuple(refusals[::-1]))
    return UndoPlan(record, tuple(changes))


def _difference(file: Touched, now: bytes | None) -> str:
    if now is None:
        return "it is gone"
    return "it exists again" if file.new is None else "its content is no longer what was written"


def undo(root: Path, plan: UndoPlan) -> None:
    """Carry `plan` out as one write and drop its record. Raises as `write_all` does."""
    record = plan.record
    commit(
        root,
        Transaction(
            plan.changes,
            f"undo of {record.label}",
            emptied=record.made[::-1],
            modes={file.path: file.mode for file in record.files},
            drop=record.name,
        ),
    )
