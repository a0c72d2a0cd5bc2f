"""What `git blame` says of a file: how many of some lines it gives to commits that were there before."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from migration.burndown.gitrun import Repository, git

_HEAD = re.compile(rb"^([0-9a-f]{40,64}) \d+ (\d+)", re.MULTILINE)


def kept(
    repository: Repository,
    commit: str,
    path: str,
    lines: Collection[int],
    new: Collection[str],
    options: Sequence[str],
) -> int:
    """How many of `lines` of the file at `commit` are blamed on commits other than `new`."""
    said = git(repository.top, "blame", "--ignore-revs-file=", "--porcelain", *options, commit, "--", path)
    return count_kept(said, lines, new)


def count_kept(porcelain: bytes, lines: Collection[int], new: Collection[str]) -> int:
    """The same from the output of `git blame --porcelain`. ValueError where it does not speak of every line."""
    owners = {int(found[2]): found[1].decode() for found in _HEAD.finditer(porcelain)}
    if missing := sorted(set(lines) - owners.keys()):
        raise ValueError(f"git blame says nothing of line {missing[0]}")
    return sum(owners[line] not in new for line in lines)
