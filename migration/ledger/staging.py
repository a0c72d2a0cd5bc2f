"""What a write prepares before it begins, and how that is taken away again."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from migration.errors import MigrationError
from migration.ledger.change import FileChange
from migration.ledger.disk import digest, missing_folders, read, sync_directories, write_synced
from migration.ledger.records import UNDO, Touched, is_inside, record_folders, record_name, stage_record

#: Where a write that is under way keeps its papers, relative to the root.
JOURNAL = f"{UNDO}/journal"
#: In there: the manifest, the manifest that does not count yet, the undo record, the record taken back.
MANIFEST, DRAFT, RECORD, DROPPED = "manifest.json", "manifest.tmp", "record", "dropped"


@dataclass(frozen=True)
class Transaction:
    """What one write does. `emptied` are folders that go if it leaves nothing in them, innermost first;
    `modes` are for files that it brings back; `drop` names the record that it takes back."""

    changes: tuple[FileChange, ...]
    label: str
    emptied: tuple[str, ...] = ()
    modes: Mapping[str, int | None] = field(default_factory=dict)
    drop: str | None = None


@dataclass(frozen=True)
class Manifest:
    """A write that can be finished, or taken back, by somebody who knows nothing else about it."""

    label: str
    files: tuple[Touched, ...]
    #: Folders that it makes, outermost first, and folders that it may leave empty, innermost first.
    made: tuple[str, ...]
    emptied: tuple[str, ...]
    #: Undo record that it adds, or takes away.
    add: str | None
    drop: str | None

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Raises FileNotFoundError, or ValueError for half a manifest."""
        content = json.loads(path.read_bytes())
        try:
            files = tuple(Touched(**file) for file in content.pop("files"))
            made, emptied = tuple(content.pop("made")), tuple(content.pop("emptied"))
            manifest = cls(files=files, made=made, emptied=emptied, **content)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(str(error)) from error
        if not all(is_inside(path) for path in (*made, *emptied)):
            raise ValueError("it leads outside the repository")
        return manifest


def place(root: Path, path: str) -> tuple[Path, Path]:
    """The file that `path` stands for, links followed, and its new content while it waits. Raises MG313."""
    try:
        target = (root / path).resolve()
    except RuntimeError as error:  # how Python before 3.13 reports a loop of links
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(root / path)) from error
    if not target.is_relative_to(root.resolve()):
        raise MigrationError("MG313", f"{path} is {target}, which is not under {root}")
    return target, target.with_name(f".{target.name}.migrate-tmp")


def check(root: Path, transaction: Transaction) -> None:
    """Raises MG306 if the tree is not the one that was planned on, MG312 for two names of one file."""
    seen: dict[Path, str] = {}
    for change in transaction.changes:
        target, _ = place(root, change.path)
        if read(target) != change.before:
            raise MigrationError("MG306", f"{change.path} is not the file that was planned on")
        if target in seen:
            raise MigrationError("MG312", f"{seen[target]} and {change.path} are both {target}")
        seen[target] = change.path
    if transaction.drop is not None and not (root / UNDO / transaction.drop).is_dir():
        raise MigrationError("MG306", f"the undo record {transaction.drop} is gone")


def stage(root: Path, transaction: Transaction) -> Manifest:
    """Put everything that the write needs on the disk. Nothing counts yet: `forget` takes it away."""
    journal = root / JOURNAL
    around = [root, *missing_folders(journal), journal.parent]
    journal.parent.mkdir(parents=True, exist_ok=True)
    if read(ignore := journal.parent / ".gitignore") != b"*\n":
        write_synced(ignore, b"*\n")
    journal.mkdir()
    targets = [place(root, change.path)[0] for change in transaction.changes]
    folders = sorted({f for target in targets for f in missing_folders(target)}, key=lambda f: len(f.parts))
    files = tuple(map(_touched, transaction.changes, targets, [transaction.modes] * len(targets)))
    numbers = [number for number, _ in record_folders(root)]
    manifest = Manifest(
        transaction.label,
        files,
        made=tuple(folder.relative_to(root.resolve()).as_posix() for folder in folders),
        emptied=transaction.emptied,
        add=None if transaction.drop else record_name(max(numbers, default=0) + 1),
        drop=transaction.drop,
    )
    time = datetime.now(UTC).isoformat(timespec="seconds")
    old = [change.before for change in transaction.changes]
    stage_record(journal / RECORD, transaction.label, time, files, manifest.made, old)
    # From here on `forget` learns from the draft what lies beside the targets.
    write_synced(journal / DRAFT, json.dumps(asdict(manifest)).encode())
    for folder in folders:
        folder.mkdir()
    for change, file in zip(transaction.changes, files, strict=True):
        if change.after is not None:
            target, waiting = place(root, change.path)
            write_synced(waiting, change.after, mode=file.mode, like=target)
    homes = [*(folder.parent for folder in folders), *(target.parent for target in targets)]
    sync_directories([journal / RECORD, journal, *around, *homes])
    return manifest


def _touched(change: FileChange, target: Path, modes: Mapping[str, int | None]) -> Touched:
    mode = target.stat().st_mode & 0o7777 if target.exists() else modes.get(change.path)
    return Touched(change.path, digest(change.before), digest(change.after), mode)


def forget(root: Path) -> None:
    """Take away what was prepared for a write that has not begun."""
    journal = root / JOURNAL
    # Without a whole draft nothing lies elsewhere.
    with contextlib.suppress(FileNotFoundError, ValueError):
        manifest = Manifest.load(journal / DRAFT)
        for file in manifest.files:
            with contextlib.suppress(OSError):  # never written: its folder does not exist or is not ours
                place(root, file.path)[1].unlink()
        remove_made(root, manifest)
    close(root)


def remove_made(root: Path, manifest: Manifest) -> None:
    for folder in reversed(manifest.made):
        with contextlib.suppress(OSError):  # somebody else uses it
            (root / folder).rmdir()


def close(root: Path) -> None:
    """Remove a journal that has no manifest; what stays behind goes with the next write."""
    journal = root / JOURNAL
    with contextlib.suppress(OSError):
        sync_directories([journal])
    shutil.rmtree(journal, ignore_errors=True)
    with contextlib.suppress(OSError):  # where no record is left, nothing of ours stays in the tree
        if not journal.exists() and not record_folders(root):
            os.unlink(journal.parent / ".gitignore")
            journal.parent.rmdir()
            journal.parent.parent.rmdir()
