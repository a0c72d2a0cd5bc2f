"""Binding of the attention wrapper's class attributes for the time of one capture, replay or reference
run."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from batchgen.attention import AttnWrapperBase

__all__ = ["CaptureContext"]


class CaptureContext:
    """`with CaptureContext(cache_seqlens=..., ...)`: bind on entry, put everything back on exit.

    Restores every attribute of `MUTABLE_ATTRS`, those that the body changed by itself included (a forward
    sets its decode plan), after an exception too. Nests. ValueError names an attribute that the wrapper
    lacks.
    """

    def __init__(self, **attrs: Any) -> None:
        unknown = sorted(attrs.keys() - set(AttnWrapperBase.MUTABLE_ATTRS))
        if unknown:
            raise ValueError(
                f"AttnWrapperBase has no attribute {', '.join(unknown)} to bind; "
                f"it has {', '.join(AttnWrapperBase.MUTABLE_ATTRS)}"
            )
        self._attrs = attrs
        self._saved: list[dict[str, Any]] = []

    def __enter__(self) -> CaptureContext:
        self._saved.append(AttnWrapperBase.snapshot())
        for name, value in self._attrs.items():
            setattr(AttnWrapperBase, name, value)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name, value in self._saved.pop().items():
            setattr(AttnWrapperBase, name, value)
