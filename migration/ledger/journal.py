"""Write several files as one: after a kill at any instant, `recover` leaves the old or the new tree.

Before anything of the tree changes, its new contents lie synced beside the targets, the old ones in the
journal, and a manifest says what is to happen. The manifest counts from the moment it is renamed into place.
From then on a write goes forward, by renaming and deleting only; where the system refuses one of these, it
goes all the way back. The undo record is a folder of the journal that the same write moves to its place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from migration.errors import MigrationError
from migration.ledger.change import FileChange
from migration.ledger.disk import digest, read, remove_folder_if_empty, sync_directories, write_synced
from migration.ledger.interrupts import held_back
from migration.ledger.records import KEPT, UNDO, record_folders, record_name
from migration.ledger.staging import (
    DRAFT,
    DROPPED,
    JOURNAL,
    MANIFEST,
    RECORD,
    Manifest,
    Transaction,
    check,
    close,
    forget,
    place,
    remove_made,
    stage,
)


def write_all(root: Path, changes: Sequence[FileChange], *, label: str) -> str | None:
    """Write every change or none, and leave an undo record. `label` says what is done ("port --cut kv").

    Returns the name of the record, None if no file would change. Links stay links: what they point to is
    written. Raises MG306 if a file is not what the plan was made from, MG307, MG309, MG312 and MG313; OSError
    when the system refuses (the tree is then the old one); `Interrupted` when a signal came meanwhile.
    """
    real = tuple(change for change in changes if change.before != change.after)
    above = {f for change in real if change.after is None for f in Path(change.path).parents[:-1]}
    emptied = sorted(above, key=lambda folder: len(folder.parts), reverse=True)
    return commit(root, Transaction(real, label, tuple(folder.as_posix() for folder in emptied)))


def commit(root: Path, transaction: Transaction) -> str | None:
    """Carry out a write or an undo; the name of the record that it adds. Raises as `write_all` does."""
    with _locked(root), held_back() as held:
        _recover(root)
        if not transaction.changes and transaction.drop is None:
            return None
        check(root, transaction)
        try:
            manifest = stage(root, transaction)
            held.raise_if_any(f"interrupted: nothing was written ({transaction.label})")
            os.replace(root / JOURNAL / DRAFT, root / JOURNAL / MANIFEST)
        except (OSError, KeyboardInterrupt):
            forget(root)
            raise
        _complete(root, manifest)
        back = "" if transaction.drop else "; `migrate undo` takes it back"
        held.raise_if_any(f"interrupted: {transaction.label} was under way and has been finished{back}")
        return manifest.add


def pending(root: Path) -> bool:
    """True when an earlier run was killed while it was writing."""
    return (root / JOURNAL).exists()


def recover(root: Path) -> str | None:
    """Finish or forget an interrupted write: the label of one that was finished, else None.

    Raises MG305 if a file was edited meanwhile, MG307, MG309; OSError when the system refuses (the tree is
    then the old one).
    """
    with _locked(root), held_back():
        return _recover(root)


def _recover(root: Path) -> str | None:
    if not pending(root):
        return None
    path = root / JOURNAL / MANIFEST
    if not path.exists():
        forget(root)
        return None
    try:
        manifest = Manifest.load(path)
    except ValueError as error:
        raise MigrationError("MG305", f"{path} cannot be read: {error}") from error
    _complete(root, manifest)
    return manifest.label


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise MigrationError("MG307", f"{root} is locked") from error
    finally:
        os.close(descriptor)


def _complete(root: Path, manifest: Manifest) -> None:
    """Bring the tree to the new state, or back to the old one if the system refuses (and raise its error)."""
    journal = root / JOURNAL
    for index, file in enumerate(manifest.files):
        if digest(read(place(root, file.path)[0])) not in (file.old, file.new):
            before = f"its bytes before are in {journal / RECORD / str(index)}" if file.old else "it was new"
            raise MigrationError("MG305", f"{file.path} was changed after the interrupted write; {before}")
    try:
        _forward(root, manifest)
        (journal / MANIFEST).unlink()
    except OSError as error:
        try:
            _backward(root, manifest)
            (journal / MANIFEST).unlink()
        except OSError as second:
            said = f"{error.strerror}: {error.filename}, and then {second.strerror}: {second.filename}"
            raise MigrationError("MG309", f"{manifest.label} is neither done nor undone: {said}") from error
        close(root)
        raise
    close(root)


def _forward(root: Path, manifest: Manifest) -> None:
    undo, journal = root / UNDO, root / JOURNAL
    sync_directories([journal])  # the manifest is on the disk before the first target is replaced
    homes = []
    for file in manifest.files:
        target, waiting = place(root, file.path)
        homes.append(target.parent)
        if digest(read(target)) == file.new:
            waiting.unlink(missing_ok=True)
        elif file.new is None:
            target.unlink()
        elif digest(read(waiting)) == file.new:
            os.replace(waiting, target)
        else:
            raise FileNotFoundError(errno.ENOENT, "the new content is gone", str(waiting))
    sync_directories(homes)
    for folder in manifest.emptied:
        remove_folder_if_empty(root / folder)
    if manifest.add and (journal / RECORD).exists():
        os.replace(journal / RECORD, undo / manifest.add)
    if manifest.drop and (undo / manifest.drop).exists():
        os.replace(undo / manifest.drop, journal / DROPPED)
    for number, oldest in record_folders(root)[:-KEPT]:
        os.replace(oldest, journal / f"pruned-{number}")
    sync_directories([undo])


def _backward(root: Path, manifest: Manifest) -> None:
    undo, journal = root / UNDO, root / JOURNAL
    if manifest.add and (undo / manifest.add).exists():
        os.replace(undo / manifest.add, journal / RECORD)
    if manifest.drop and (journal / DROPPED).exists():
        os.replace(journal / DROPPED, undo / manifest.drop)
    for pruned in journal.glob("pruned-*"):
        os.replace(pruned, undo / record_name(int(pruned.name.partition("-")[2])))
    homes = []
    for index, file in reversed(list(enumerate(manifest.files))):
        target, waiting = place(root, file.path)
        homes.append(target.parent)
        if digest(read(target)) != file.old:
            if file.old is None:
                target.unlink()
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                old = (journal / RECORD / str(index)).read_bytes()
                write_synced(waiting, old, mode=file.mode, like=target)
                os.replace(waiting, target)
        waiting.unlink(missing_ok=True)
    sync_directories([undo, *homes])
    remove_made(root, manifest)
