"""The scratch work tree in out/pr/: where a stage is checked, tested and compared."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from migration.burndown.gitrun import GitError, Repository, git
from migration.ledger.git import uncommitted
from pipeline.branches import QUIET, head, who_and_when
from pipeline.errors import PipelineError

FOLDER = "out/pr"


@dataclass(frozen=True)
class Scratch:
    """`folder` has the pages; `top` is a work tree of the user's repository with no branch of its own."""

    repository: Repository
    folder: Path

    @property
    def top(self) -> Path:
        return self.folder / "tree"

    @property
    def root(self) -> Path:
        """What is the folder of the configuration in the user's tree."""
        return self.top / self.repository.prefix

    def show(self, commit: str) -> None:
        """The files of a commit and no others; a work tree that was left half-made is made anew."""
        if self._is_whole():
            try:
                git(self.top, *QUIET, "checkout", "--quiet", "--detach", "--force", commit)
                git(self.top, "clean", "-ffdxq")
                return
            except GitError:
                pass  # left by a kill: a lock, half an index
        self.remove()
        git(self.repository.top, *QUIET, "worktree", "add", "--quiet", "--detach", str(self.top), commit)

    def remove(self) -> None:
        """The work tree is gone from disk and from git's list."""
        shutil.rmtree(self.top, ignore_errors=True)
        git(self.repository.top, "worktree", "prune")

    def _is_whole(self) -> bool:
        """Whether the folder is a work tree of this repository, and not one that was copied or begun."""
        if not (self.top / ".git").is_file():
            return False
        try:
            common = [
                Path(
                    os.fsdecode(git(place, "rev-parse", "--path-format=absolute", "--git-common-dir")).strip()
                )
                for place in (self.top, self.repository.top)
            ]
        except GitError:
            return False
        return common[0].resolve() == common[1].resolve()


@contextlib.contextmanager
def scratch(repository: Repository, root: Path) -> Iterator[Scratch]:
    """One run at a time. PipelineError where another one is at it."""
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipelineError(
                f"another run is at work in {folder}: wait for it, or end it; then run again"
            ) from error
        yield Scratch(repository, folder)


def start(repository: Repository, root: Path, *, work_tree: bool) -> str:
    """The commit that the stack begins on: HEAD, or with `work_tree` a commit of the files as they lie there.

    PipelineError where there are changes that HEAD does not have, and nobody said what is to become of them.
    """
    begin = head(repository)
    changed = uncommitted(root, [])
    if not changed:
        return begin
    if not work_tree:
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        raise PipelineError(
            f"not committed: {shown}; the pull requests start from HEAD: commit first, or pass --work-tree"
        )
    return _snapshot(repository, begin)


def _snapshot(repository: Repository, begin: str) -> str:
    """A commit of the files as they are on disk, less those that git ignores, made with an index of its own."""
    with tempfile.TemporaryDirectory() as folder:
        own = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
        git(repository.top, "read-tree", begin, environment=own)
        git(repository.top, "add", "--all", "--", ".", environment=own)
        tree = os.fsdecode(git(repository.top, "write-tree", environment=own)).strip()
    made = git(
        repository.top,
        "commit-tree",
        tree,
        *("-p", begin, "-m", "The work tree, not committed"),
        environment=who_and_when(repository, begin),
    )
    return os.fsdecode(made).strip()
