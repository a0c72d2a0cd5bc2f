"""Faults of one rank, each struck before the decode step STEP begins."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from shadow.mutants import Fault, Plant, Where, mutant
from shadow.mutants.patch import around, module
from shadow.observation import Kind

STEP = 3


def before_the_step(plant: Plant, strike: Callable[[], object]) -> AbstractContextManager[None]:
    def forward(original: Any, *arguments: Any) -> Any:
        if plant.step() == STEP:
            plant.fired()
            strike()
        return original(*arguments)

    return around(plant.worker, "_decode_forward_step", forward)


@mutant("other-tokens", Fault.NUMERIC, Where(Kind.TOKENS, "token", step=STEP))
@contextmanager
def other_tokens(plant: Plant) -> Iterator[None]:
    """Every row of the step gets the token after its own."""

    def select(original: Any, *arguments: Any) -> Any:
        tokens, logprobs = original(*arguments)
        if plant.step() == STEP:
            plant.fired()
            tokens = tokens + 1
        return tokens, logprobs

    with around(module(plant, "batchgen_worker"), "select_tokens", select):
        yield


@mutant("one-barrier-more", Fault.STRUCTURAL, Where(Kind.EFFECTS, "next collective", step=STEP))
@contextmanager
def one_barrier_more(plant: Plant) -> Iterator[None]:
    """A collective that the other ranks, and the other path, do not make."""
    with before_the_step(plant, lambda: dist.barrier()):
        yield


@mutant("one-collective-less", Fault.STRUCTURAL, Where(Kind.EFFECTS, "next collective", step=STEP))
@contextmanager
def one_collective_less(plant: Plant) -> Iterator[None]:
    """This rank stays away from a collective that it knows the answer of."""
    left: list[str] = []

    def gather(original: Any, answers: list[Any], own: Any) -> None:
        if plant.step() < STEP or left:
            original(answers, own)
            return
        plant.fired()
        left.append("out")
        answers[:] = [own] * len(answers)

    with around(dist, "all_gather_object", gather):
        yield


@mutant("unseen-barrier", Fault.STRUCTURAL, Where(Kind.OUTCOME, "outcome", step=STEP))
@contextmanager
def unseen_barrier(plant: Plant) -> Iterator[None]:
    """A collective that is called past every hook: nothing tells of it, the rank waits."""
    with before_the_step(plant, lambda: distributed_c10d.barrier()):
        yield


@mutant("falls-asleep", Fault.STRUCTURAL, Where(Kind.OUTCOME, "outcome", step=STEP))
@contextmanager
def falls_asleep(plant: Plant) -> Iterator[None]:
    """A rank that never comes to the next collective, where all others wait for it."""
    with before_the_step(plant, lambda: time.sleep(3600)):
        yield


@mutant("raises", Fault.STRUCTURAL, Where(Kind.OUTCOME, "outcome", step=STEP))
@contextmanager
def raises(plant: Plant) -> Iterator[None]:
    """A rank that fails alone; the others lose their connection to it."""

    def strike() -> None:
        raise ArithmeticError("this rank is broken")

    with before_the_step(plant, strike):
        yield


@mutant("leaves", Fault.STRUCTURAL, Where(Kind.OUTCOME, "outcome", step=STEP))
@contextmanager
def leaves(plant: Plant) -> Iterator[None]:
    """A rank whose process ends without a word."""
    with before_the_step(plant, lambda: os._exit(3)):
        yield
