"""git as a process: plain questions, the bytes of many objects, and what git says when it fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

#: Of the user's configuration, what would change the output that is parsed here.
_PLAIN = ("-c", "log.showSignature=false", "-c", "log.diffMerges=separate", "-c", "core.quotePath=false")


class GitError(Exception):
    """git is not there, or refused; the message is the first line of what it said."""


@dataclass(frozen=True)
class Repository:
    """`top` is the work tree; `prefix` the way from there to the folder that the user named ("" or "a/b/")."""

    top: Path
    prefix: str


def git(
    folder: Path, *arguments: str, data: bytes | None = None, environment: Mapping[str, str] | None = None
) -> bytes:
    """What git prints; raises GitError when it fails."""
    command = ["git", *_PLAIN, "-C", str(folder), "--literal-pathspecs", *arguments]
    extra = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **(environment or {})}
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, check=False, env={**os.environ, **extra}
        )
    except FileNotFoundError as error:
        raise GitError("git is not installed") from error
    if done.returncode:
        said = os.fsdecode(done.stderr).strip().splitlines()
        raise GitError(said[0] if said else f"git {arguments[0]} ends with {done.returncode}")
    return done.stdout


def open_git(root: Path) -> Repository:
    """The repository around `root`; GitError where there is none, or nothing is committed in it."""
    top = os.fsdecode(git(root, "rev-parse", "--show-toplevel")).rstrip("\n")
    prefix = os.fsdecode(git(root, "rev-parse", "--show-prefix")).rstrip("\n")
    try:
        git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitError as error:
        raise GitError("nothing is committed yet") from error
    return Repository(Path(top), prefix)


class Blobs:
    """The bytes of objects by their ids, from one `git cat-file --batch` process. A context manager."""

    def __init__(self, repository: Repository) -> None:
        self._process = subprocess.Popen(
            ["git", "-C", str(repository.top), "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def read(self, identity: str) -> bytes:
        """The bytes of a blob; GitError where the repository does not have it (a partial clone, offline)."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        try:
            asked.write(identity.encode() + b"\n")
            asked.flush()
        except BrokenPipeError as error:
            raise GitError("git cat-file has ended") from error
        head = answers.readline().split()
        if len(head) != 3 or head[1] != b"blob":
            raise GitError(f"git has no file {identity}")
        data = answers.read(int(head[2]))
        answers.read(1)
        return data

    def __enter__(self) -> Blobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
