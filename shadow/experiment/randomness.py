"""The process-wide random generators: the candidate draws what the control drew, the caller sees no draw of it."""

from __future__ import annotations

import random
import sys
from typing import Any


class Randomness:
    """A moment of random's, numpy's and torch's own generators; of the last two only where they are loaded."""

    def __init__(self) -> None:
        self._states: dict[str, Any] = {"random": random.getstate()}
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and "numpy.random" in sys.modules:
            self._states["numpy.random"] = numpy.random.get_state()
        if torch is not None and hasattr(torch, "get_rng_state"):
            self._states["torch"] = torch.get_rng_state()
            if torch.cuda.is_initialized():
                self._states["torch.cuda"] = torch.cuda.get_rng_state_all()

    def restore(self) -> None:
        """Puts the generators back to this moment."""
        for name, state in self._states.items():
            if name == "random":
                random.setstate(state)
            elif name == "numpy.random":
                sys.modules["numpy"].random.set_state(state)
            elif name == "torch":
                sys.modules["torch"].set_rng_state(state)
            else:
                sys.modules["torch"].cuda.set_rng_state_all(state)

    def states(self) -> dict[str, Any]:
        """By name; equal states have drawn the same numbers."""
        return {name: hash(state) if name == "random" else state for name, state in self._states.items()}


def generator_state(value: Any) -> Any:
    """What a random generator will draw next, as plain data; None for anything else."""
    kind, numpy, torch = type(value), sys.modules.get("numpy"), sys.modules.get("torch")
    if kind is random.Random:
        return value.getstate()
    if numpy is not None and "numpy.random" in sys.modules and kind is numpy.random.Generator:
        return value.bit_generator.state
    return value.get_state() if torch is not None and kind is torch.Generator else None


def forked_generator(value: Any) -> Any:
    """A random generator that will draw what `value` would draw next; None for anything else."""
    state = generator_state(value)
    if state is None:
        return None
    made: Any
    if type(value) is random.Random:
        made = random.Random()
        made.setstate(state)
    elif hasattr(value, "bit_generator"):
        made = type(value)(type(value.bit_generator)())
        made.bit_generator.state = state
    else:
        made = type(value)(value.device)
        made.set_state(state)
    return made
