"""Where a graft is cut out and put in: right before the decode forward of one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shadow.graft.input import Input
from shadow.graft.transplant import Material, put, take
from shadow.messages import HarnessError, Offer
from shadow.observer import Observer

HOOK = "_decode_make_batch_state"


def install(
    observer: Observer,
    step: int,
    which: str,
    send: Callable[[Offer], None],
    receive: Callable[[], Material | None],
) -> None:
    """Both sides offer their input before the forward of `step`; the one that is answered takes the other's.

    HarnessError: the worker has no method where its inputs are complete and its forward has not begun.
    """
    worker = observer.worker
    original = getattr(worker, HOOK, None)
    if original is None:
        raise HarnessError(f"{type(worker).__name__} has no method {HOOK}: nothing can be grafted there")

    def hook(sequences: Any, new_tokens: Any, *rest: Any, **kwargs: Any) -> Any:
        if observer.steps == step:
            observer.names.refresh()
            chosen = Input(which)
            send(Offer(take(chosen, observer.subject, new_tokens, sequences)))
            material = receive()
            if material is not None:
                with torch.inference_mode():  # the worker's tokens can be written to in it only
                    put(chosen, material, observer.subject, new_tokens, sequences)
        return original(sequences, new_tokens, *rest, **kwargs)

    setattr(worker, HOOK, hook)
