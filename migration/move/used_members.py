"""Members of a handle that is not the worker: what moved code does with the object is all that is known of it."""

from __future__ import annotations

from collections.abc import Iterable

from migration.code.facts import WRITING, SelfUse
from migration.move.members import Member


def used_member(name: str, uses: Iterable[tuple[str, SelfUse]], where: str) -> Member:
    """The Protocol member for all uses of one attribute of the object that `where` gives.

    Only called: a method that takes anything. Otherwise an attribute, read-only unless it is written.
    """
    cited = tuple(uses)
    used_by = tuple(f"{method}:{use.line}" for method, use in cited)
    written = any(use.kind in WRITING or use.kind in ("delete", "delattr") for _, use in cited)
    if written:
        text = f"    {name}: Any"
    elif all(use.kind in ("call", "hasattr") for _, use in cited):
        text = f"    def {name}(self, *args: Any, **kwargs: Any) -> Any: ..."
    else:
        text = f"    @property\n    def {name}(self) -> Any: ..."
    return Member(name, text, written, False, f"used on {where}", used_by)
