"""The stack as commits and scratch branches. The user's branch, index and files are not touched.

Commits are made beside the work tree, and a commit is what it was made from: the same base gives the same ids, so a
second run moves nothing. All branches are set in one transaction of git: a kill leaves all old or all new ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from migration.blame.objects import build
from migration.blame.ways import Step, Way
from migration.burndown.gitrun import GitError, Repository, git
from migration.ledger.change import FileChange
from pipeline.errors import PipelineError
from pipeline.stack import BASE, Stack

PREFIX = "migrate/"
#: Hooks of the user are about the user's commits, not about these.
QUIET = ("-c", "core.hooksPath=/dev/null")
_TRAILER = "Pull-Request:"
_NOBODY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "migrate"), ("EMAIL", "migrate@localhost"))
}


@dataclass(frozen=True)
class Commit:
    """The commit of one stage (or of the base), and the one before it."""

    label: str
    id: str
    parent: str


def head(repository: Repository) -> str:
    return _plain(git(repository.top, "rev-parse", "HEAD"))


def commit_base(repository: Repository, start: str, changes: Sequence[FileChange]) -> Commit:
    """The class before its first slice, on top of the commit `start`."""
    said = "The class as it was before its first slice, without handlers and proofs"
    return _commits(repository, start, [(BASE, said, changes)])[0]


def commit_stack(repository: Repository, base: Commit, stack: Stack) -> list[Commit]:
    return _commits(repository, base.id, [(one.label, one.subject, one.changes) for one in stack.stages])


def _commits(
    repository: Repository, start: str, wanted: Sequence[tuple[str, str, Sequence[FileChange]]]
) -> list[Commit]:
    steps = tuple(
        Step(f"{said}\n\n{_TRAILER} {name}\n", tuple((one.path, one.after) for one in changes))
        for name, said, changes in wanted
    )
    built = build(repository, Way("stack", steps, None, None), start, who_and_when(repository, start))
    parents = (start, *built.commits)
    return [
        Commit(name, made, parent)
        for (name, _, _), made, parent in zip(wanted, built.commits, parents, strict=False)
    ]


def who_and_when(repository: Repository, start: str) -> Mapping[str, str]:
    """The user, at the time of the commit that all begins with."""
    when = _plain(git(repository.top, "show", "-s", "--format=%ct +0000", start))
    try:
        git(repository.top, "var", "GIT_COMMITTER_IDENT")
        git(repository.top, "var", "GIT_AUTHOR_IDENT")
        who: Mapping[str, str] = {}
    except GitError:
        who = _NOBODY
    return {**who, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}


def publish(repository: Repository, commits: Sequence[Commit]) -> list[str]:
    """Let the branches point to these commits; what was moved, in words.

    PipelineError where a branch has the user's work in it, or is checked out and would move.
    """
    wanted = dict(_names(commits))
    known = _branches(repository)
    moves = {name: made for name, made in wanted.items() if known.get(name, "") != made}
    checked_out = _checked_out(repository)
    for name in moves:
        if name in known:
            _ours(repository, name, known[name])
        if name in checked_out:
            raise PipelineError(
                f"the branch {name} is checked out in {checked_out[name]} and would move: "
                "switch to another one there, and run again"
            )
    lines = [
        f"update refs/heads/{name} {made} {known.get(name, '0' * len(made))}\n"
        for name, made in moves.items()
    ]
    if lines:
        git(repository.top, *QUIET, "update-ref", "-m", "pipeline", "--stdin", data="".join(lines).encode())
    return [
        f"{name} {'was ' + known[name][:10] + ', ' if name in known else ''}is {made[:10]}"
        for name, made in moves.items()
    ]


def _names(commits: Sequence[Commit]) -> Iterator[tuple[str, str]]:
    """(branch, commit): one for each stage, and of a port in parts one for the whole as well."""
    for one in commits:
        yield PREFIX + one.label, one.id
        yield (
            PREFIX + one.label.rstrip("abcdefghijklmnopqrstuvwxyz") if one.label != BASE else PREFIX + BASE,
            one.id,
        )


def _branches(repository: Repository) -> dict[str, str]:
    listed = git(
        repository.top, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", f"refs/heads/{PREFIX}"
    )
    return dict(line.split(" ") for line in os.fsdecode(listed).splitlines())


def _ours(repository: Repository, name: str, tip: str) -> None:
    """A commit of this pipeline has its trailer, and was made once: an amended one has another committer's date."""
    said = _plain(git(repository.top, "show", "-s", "--format=%at %ct %s%n%B", tip))
    dates, _, message = said.partition("\n")
    made, changed, subject = dates.split(" ", 2)
    if f"\n{_TRAILER} " not in message or made != changed:
        raise PipelineError(
            f"the branch {name} has work of somebody in it ({tip[:10]} {subject!r}): "
            f"git branch -m {name} another-name, and run again"
        )


def _checked_out(repository: Repository) -> dict[str, str]:
    """Branch -> the folder in which it is checked out."""
    found, folder = {}, ""
    for line in os.fsdecode(git(repository.top, "worktree", "list", "--porcelain")).splitlines():
        word, _, rest = line.partition(" ")
        if word == "worktree":
            folder = rest
        elif word == "branch":
            found[rest.removeprefix("refs/heads/")] = folder
    return found


def changed_lines(repository: Repository, commit: Commit) -> list[tuple[str, int, int]]:
    """(file, lines added, lines deleted) of a commit."""
    listed = git(repository.top, "diff", "--numstat", "--no-renames", "-z", commit.parent, commit.id)
    rows = []
    for entry in os.fsdecode(listed).split("\0"):
        if entry:
            plus, minus, path = entry.split("\t", 2)
            rows.append((path, int(plus), int(minus)))
    return rows


def lines_at(repository: Repository, commit: str, path: str) -> int:
    """Lines of a file at a commit, 0 where it is not there."""
    try:
        return git(repository.top, "cat-file", "blob", f"{commit}:{repository.prefix}{path}").count(b"\n")
    except GitError:
        return 0


def _plain(data: bytes) -> str:
    return os.fsdecode(data).strip()
