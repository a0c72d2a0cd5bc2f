"""Two mutants of one's own, for `shadow mutants --mutants examples/my_mutants.py --no-catalogue`.

docs/mutants.md says how they are written.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shadow.mutants import Fault, Plant, Where, mutant
from shadow.mutants.patch import around, module, sequence
from shadow.observation import Kind


@mutant("example-second-best-token", Fault.NUMERIC, Where(Kind.TOKENS, "token", step=6, sequence="b"))
@contextmanager
def second_best_token(plant: Plant) -> Iterator[None]:
    """In step 6 row 0 gets the second best token: the logits are right, what is made of them is not."""

    def select(original: Any, logits: Any, params: Any, positions: Any) -> Any:
        tokens, logprobs = original(logits, params, positions)
        if plant.step() == 6:
            tokens = tokens.clone()
            tokens[0] = logits[0].topk(2).indices[1]
            plant.fired()
        return tokens, logprobs

    with around(module(plant, "batchgen_worker"), "select_tokens", select):
        yield


@mutant(
    "example-counts-a-page-too-many",
    Fault.STRUCTURAL,
    Where(Kind.INVARIANT, "held-pages", step=10, sequence="d"),
)
@contextmanager
def counts_a_page_too_many(plant: Plant) -> Iterator[None]:
    """The record of d says that it holds one page more than the pool has given it."""

    def update(original: Any, batch: Any, tokens: Any) -> None:
        original(batch, tokens)
        if plant.step() == 10:  # step 9 is over, the next one has number 10
            sequence(plant, "d").gpu_pages_allocated += 1
            plant.fired()

    with around(plant.worker, "_decode_update_sequences", update):
        yield
