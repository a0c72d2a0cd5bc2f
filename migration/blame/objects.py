"""Commits made beside the work tree and its index: objects that nothing refers to until they are published."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from migration.blame.ways import Step, Way
from migration.burndown.gitrun import GitError, Repository, git


@dataclass(frozen=True)
class Built:
    """The commits of a way, oldest first; the last one is what a branch would point to. `edit` is one of them."""

    way: Way
    commits: tuple[str, ...]
    tree: str
    edit: str | None

    @property
    def tip(self) -> str:
        return self.commits[-1]


def build(
    repository: Repository, way: Way, base: str, environment: Mapping[str, str] = MappingProxyType({})
) -> Built:
    """Write the objects of a way on top of `base`. GitError where git refuses (no name and address set).

    `environment` may say who commits, and when: the same then gives the same commits.
    """
    commits: list[str] = []
    parent = base
    tree = ""
    for step in way.steps:
        tree = _tree(repository, parent, step)
        parent = _commit(repository, tree, (parent,), step.message, environment)
        commits.append(parent)
    edit = None if way.edit is None else commits[way.edit]
    if way.merge is not None:
        tree = _tree(repository, base, way.merge)
        commits.append(_commit(repository, tree, (base, parent), way.merge.message, environment))
    return Built(way, tuple(commits), tree, edit)


def _tree(repository: Repository, parent: str, step: Step) -> str:
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
        git(repository.top, "read-tree", parent, environment=index)
        entries = index_entries(repository, parent, step.files)
        git(repository.top, "update-index", "-z", "--index-info", data=entries, environment=index)
        return git(repository.top, "write-tree", environment=index).decode().strip()


def index_entries(repository: Repository, commit: str, files: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Lines for `git update-index --index-info`; a file that `commit` (a full id) has keeps its mode."""
    out = []
    modes = _modes(repository, commit, [repository.prefix + path for path, _ in files])
    for path, data in files:
        name = repository.prefix + path
        if data is None:
            out.append(b"0 " + b"0" * len(commit) + b"\t" + os.fsencode(name) + b"\0")
        else:
            blob = git(repository.top, "hash-object", "-w", "--stdin", f"--path={name}", data=data).strip()
            out.append(modes.get(name, b"100644") + b" " + blob + b"\t" + os.fsencode(name) + b"\0")
    return b"".join(out)


def _modes(repository: Repository, commit: str, names: Sequence[str]) -> Mapping[str, bytes]:
    found = {}
    for entry in git(repository.top, "ls-tree", "-z", "--full-tree", commit, "--", *names).split(b"\0"):
        facts, _, name = entry.partition(b"\t")
        if facts:
            found[os.fsdecode(name)] = facts.split()[0]
    return found


def _commit(
    repository: Repository, tree: str, parents: Sequence[str], message: str, environment: Mapping[str, str]
) -> str:
    options = [option for parent in parents for option in ("-p", parent)]
    made = git(
        repository.top,
        "commit-tree",
        tree,
        *options,
        "-F",
        "-",
        data=message.encode(),
        environment=environment,
    )
    return made.decode().strip()


def publish(
    repository: Repository, built: Built, base: str, files: Sequence[tuple[str, bytes | None]]
) -> None:
    """Let the index know the files and HEAD's branch point to the commits. GitError where HEAD has moved."""
    try:
        entries = index_entries(repository, base, files)
        git(repository.top, "update-index", "-z", "--index-info", data=entries)
        git(repository.top, "update-ref", "-m", "migrate port", "HEAD", built.tip, base)
    except GitError as error:
        raise GitError(f"the files are written all the same; {error}") from error


def base_of(repository: Repository, paths: Sequence[str]) -> str:
    """The commit at HEAD. GitError where a merge or the like is under way, or one of `paths` is not committed."""
    folder = Path(os.fsdecode(git(repository.top, "rev-parse", "--absolute-git-dir")).rstrip("\n"))
    for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply"):
        if (folder / name).exists():
            raise GitError(f"{name} is there: finish or abort what is under way first")
    names = [repository.prefix + path for path in paths]
    if git(repository.top, "status", "--porcelain", "--untracked-files=all", "--", *names):
        raise GitError(f"not committed as it is: one of {', '.join(paths)}")
    return git(repository.top, "rev-parse", "HEAD").decode().strip()
