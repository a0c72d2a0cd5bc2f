"""The commits that touched some files, along the first parents, with the files' blobs after each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from migration.burndown.gitrun import GitError, Repository, git

_FORMAT = "--format=%x01%H %ct %s"
_RAW = ("--first-parent", "-m", "--raw", "--no-abbrev", "--no-renames", "-z", _FORMAT)


@dataclass(frozen=True)
class Commit:
    """`time` is the committer's, in seconds; `blobs` are (path, id) of the files that were there after it."""

    id: str
    time: int
    subject: str
    blobs: tuple[tuple[str, str], ...]

    def blob(self, path: str) -> str | None:
        """The id of a file after this commit, None where there was none."""
        return dict(self.blobs).get(path)


@dataclass(frozen=True)
class History:
    """`commits` are oldest first. `renamed` are (path, what it was called earlier). `shallow`: git has no more
    than this of a longer history."""

    commits: tuple[Commit, ...]
    renamed: tuple[tuple[str, str], ...]
    shallow: bool


class _Touch(NamedTuple):
    """One file in one commit: `blob` is None where it was deleted."""

    commit: str
    time: int
    subject: str
    path: str
    blob: str | None
    added: bool


def read_history(repository: Repository, paths: Sequence[str], since: str | None = None) -> History:
    """The history of `paths` (relative to the folder that the user named), renames followed.

    With `since` it begins at that revision. Raises GitError where git knows no such revision.
    """
    start = None
    if since is not None:
        start = os.fsdecode(git(repository.top, "rev-parse", "--verify", "--quiet", f"{since}^{{commit}}"))
    start = start and start.strip()
    own = {repository.prefix + path: path for path in paths}
    touches = list(_log(repository, "HEAD", start, own))
    renamed: list[tuple[str, str]] = []
    oldest = {}
    for path, known in own.items():
        name, found = path, [touch for touch in touches if touch.path == known]
        while found and found[-1].added and (old := _renamed_from(repository, found[-1].commit, name)):
            renamed.append((known, old.removeprefix(repository.prefix)))
            name = old
            found = list(_log(repository, f"{found[-1].commit}^1", start, {old: known}))
            touches += found
        oldest[name] = known
    commits: list[Commit] = []
    blobs: dict[str, str] = {}
    if start:
        blobs = dict(_at(repository, start, oldest))
        time, _, subject = _text(git(repository.top, "log", "-1", "--format=%ct %s", start)).partition(" ")
        commits.append(Commit(start, int(time), subject.rstrip("\n"), _frozen(blobs, paths)))
    for group in _in_order(repository, touches, bool(renamed)):
        for touch in group:
            if touch.blob is None:
                blobs.pop(touch.path, None)
            else:
                blobs[touch.path] = touch.blob
        commits.append(Commit(group[0].commit, group[0].time, group[0].subject, _frozen(blobs, paths)))
    shallow = git(repository.top, "rev-parse", "--is-shallow-repository").strip() == b"true"
    return History(tuple(commits), tuple(renamed), shallow)


def _frozen(blobs: dict[str, str], paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((path, blobs[path]) for path in paths if path in blobs)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _log(repository: Repository, until: str, start: str | None, names: dict[str, str]) -> Iterator[_Touch]:
    """Newest first; `names` are (path in git -> path as the caller calls it)."""
    revisions = [until, f"^{start}"] if start else [until]
    head = ["", "0", ""]
    change: list[bytes] = []
    for token in git(repository.top, "log", *_RAW, *revisions, "--", *names).split(b"\0"):
        token = token.removeprefix(b"\n")
        if token.startswith(b"\x01"):
            head = _text(token[1:]).split(" ", 2)
        elif token.startswith(b":"):
            change = token.split()
        elif token and change:
            blob = None if change[4] == b"D" else change[3].decode()
            path = names[os.fsdecode(token)]
            yield _Touch(head[0], int(head[1]), head[2], path, blob, change[4] == b"A")
            change = []


def _renamed_from(repository: Repository, commit: str, path: str) -> str | None:
    """What the file that `commit` added was called before; None where it is a new file."""
    try:
        git(repository.top, "rev-parse", "--verify", "--quiet", f"{commit}^1")
    except GitError:
        return None  # the first commit of all
    tokens = git(repository.top, "diff-tree", "-r", "-M", "-z", "--raw", f"{commit}^1", commit).split(b"\0")
    for index, token in enumerate(tokens):
        if (
            token.startswith(b":")
            and token.split()[4].startswith(b"R")
            and os.fsdecode(tokens[index + 2]) == path
        ):
            return os.fsdecode(tokens[index + 1])
    return None


def _at(repository: Repository, revision: str, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    for entry in git(repository.top, "ls-tree", "-z", "--full-tree", revision, "--", *names).split(b"\0"):
        if entry:
            facts, _, path = entry.partition(b"\t")
            yield names[os.fsdecode(path)], facts.split()[2].decode()


def _in_order(repository: Repository, touches: Iterable[_Touch], joined: bool) -> Iterator[list[_Touch]]:
    """The touches of each commit together, oldest commit first. `joined`: they come from several logs."""
    by_commit: dict[str, list[_Touch]] = {}
    for touch in touches:
        by_commit.setdefault(touch.commit, []).append(touch)
    order = list(by_commit)
    if joined:
        listed = git(repository.top, "rev-list", "--first-parent", "HEAD").decode().split()
        place = {commit: index for index, commit in enumerate(listed)}
        order.sort(key=place.__getitem__)
    for commit in reversed(order):
        yield by_commit[commit]
