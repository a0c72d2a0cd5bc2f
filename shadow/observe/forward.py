"""How the decode forward of a step began: eagerly or as a replay, with what bound and which plan.

A replay binds static buffers and puts the worker's own bindings back, so that nothing of it is left to see when
the tokens are selected: what is needed later is kept here as it happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shadow.observe.hooks import Hooks, tree_class, tree_module


@dataclass
class Forward:
    """`buffers`: the static buffers of the replayed bucket. `plan`: None where a captured graph has it."""

    mode: str
    bucket: int | None = None
    reason: str = "disabled"
    buffers: Any = None
    manager: Any = None
    plan: Any = None
    plan_aux: Any = None


class ForwardWatch:
    """`last` is the forward of the step in hand; `began` are called as one begins, before anything is computed."""

    def __init__(self, wrapper: Any, hooks: Hooks) -> None:
        self._wrapper, self._hooks = wrapper, hooks
        self._reason = "disabled"
        self._replaying = self._aside = self._installed = False
        self.last: Forward | None = None
        self.began: list[Callable[[Forward], None]] = []

    @property
    def aside(self) -> bool:
        """Whether a forward that runs now is none of a step: a capture, or a reference to compare with."""
        return self._aside

    @property
    def missing(self) -> str | None:
        """Why a forward of this tree cannot be watched."""
        if callable(getattr(self._wrapper, "begin_decode_forward", None)):
            return None
        return f"{self._wrapper.__name__} has no begin_decode_forward"

    def install(self) -> None:
        """Idempotent: several probes need it."""
        if self._installed or self.missing is not None:
            return
        self._installed = True
        self._hooks.wrap(self._wrapper, "begin_decode_forward", self._begin)
        manager = tree_class("cuda_graph", "StaticGraphManager")
        if manager is not None:
            self._hooks.wrap(manager, "replay", self._replay)
            self._hooks.wrap(manager, "capture", self._set_aside)
        for cls in adapters():
            if "eligibility" in vars(cls):
                self._hooks.wrap(cls, "eligibility", self._eligibility)
            if "run_eager_reference" in vars(cls):
                self._hooks.wrap(cls, "run_eager_reference", self._set_aside)

    def _enter(self, forward: Forward) -> None:
        forward.reason, self._reason = self._reason, "disabled"
        self.last = forward
        for callback in self.began:
            callback(forward)

    def _begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook() -> None:
            if not self._aside and not self._replaying:
                self._enter(Forward("eager"))
            original()
            if not self._aside and self.last is not None:
                self.last.plan, self.last.plan_aux = self._wrapper.decode_plan, self._wrapper.decode_plan_aux

        return hook

    def _replay(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(manager: Any, bucket: int, inputs: Any) -> Any:
            captured = getattr(manager, "_captured", {}).get(bucket)
            buffers, pools = getattr(captured, "buffers", None), getattr(captured, "gpu_kv_manager", None)
            self._enter(Forward("replay", bucket, buffers=buffers, manager=pools))
            self._replaying = True
            try:
                return original(manager, bucket, inputs)
            finally:
                self._replaying = False

        return hook

    def _set_aside(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A forward inside of this is none of a step."""

        def hook(*args: Any, **kwargs: Any) -> Any:
            before, self._aside = self._aside, True
            try:
                return original(*args, **kwargs)
            finally:
                self._aside = before

        return hook

    def _eligibility(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(*args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            self._reason = str(answer.reason)
            return answer

        return hook


def adapters() -> list[Any]:
    """The adapter base class of the tree and everything that derives from it."""
    if tree_module("cuda_graph") is None:
        return []
    base = tree_class("cuda_graph", "CudaGraphAdapter")
    found = [] if base is None else [base]
    for cls in found:
        found += [sub for sub in cls.__subclasses__() if sub not in found]
    return found
