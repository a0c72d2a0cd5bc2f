"""The answers of the hasattr prover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["always", "never", "depends"]
SiteKind = Literal[
    "class body",
    "method",
    "property",
    "init",
    "init, some ways",
    "assigned",
    "setattr",
    "subclass",
    "other object",
    "delete",
]
Value = Literal["None", "not None", "unknown"]
RewriteKind = Literal["constant", "attribute", "default", "optional", "declared", "capability", "refused"]


@dataclass(frozen=True)
class Site:
    """A place that makes an attribute, or deletes it. `value` says whether None is assigned there."""

    kind: SiteKind
    path: str
    line: int
    where: str
    value: Value


@dataclass(frozen=True)
class Rewrite:
    """What may stand in place of the call without a change of meaning.

    `constant`: True or False. `attribute`: `self.x`. `default`: the default of a getattr.
    `optional`: None stands for "not there yet": sound once `declares` is the first statement of
    `__init__` and every test of the attribute is rewritten with it. `declared`: the same with the
    one default that every getattr of the attribute has. `capability`: an isinstance test, sound
    once `declares`, a Protocol, is in scope. `refused`: nothing; `why` says what stands against it.
    """

    kind: RewriteKind
    text: str | None
    why: str
    declares: str | None = None


@dataclass(frozen=True)
class Assumed:
    """What the code that can be seen says, where something that cannot be seen stands against a proof.

    It holds if nothing comes of the `obstacles`: whoever knows that may accept them.
    """

    verdict: Verdict
    reason: str
    obstacles: tuple[str, ...]
    rewrite: Rewrite


@dataclass(frozen=True)
class HasattrFinding:
    """One `hasattr(self, "x")` or `getattr(self, "x"[, default])`.

    `always` and `never` are proven; what is only likely is `depends`, with the rest in `assumed`.
    Positions are those of the call as `ast` counts them: lines from 1, columns in bytes from 0.
    `context`: `not` where it stands under a `not`, `and` where the attribute is used to the right of it.
    `scope`: how far was looked for code that touches the attribute: this file, or the whole tree.
    """

    kind: Literal["hasattr", "getattr"]
    method: str
    attribute: str | None
    line: int
    column: int
    end_line: int
    end_column: int
    spelled: str
    context: Literal["plain", "not", "and"]
    verdict: Verdict
    reason: str
    sites: tuple[Site, ...]
    rewrite: Rewrite
    assumed: Assumed | None
    scope: Literal["file", "tree"]
