"""Tokens: whose are they, what they were drawn from, and when a sequence has enough of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shadow.mutants.patch import around, module, row, sequence
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind


def _worker_module(plant: Plant) -> Any:
    return module(plant, "batchgen_worker")


@mutant("tokens-of-two-rows-swapped", Fault.NUMERIC, Where(Kind.TOKENS, "token", step=8, sequence="b"))
@contextmanager
def tokens_of_two_rows_swapped(plant: Plant) -> Iterator[None]:
    """vllm#25279, vllm-ascend#13864: in the step after a join the tokens of rows 0 and 1 change places."""

    def select(original: Any, logits: Any, params: Any, positions: Any) -> Any:
        tokens, logprobs = original(logits, params, positions)
        if plant.step() == 8 and len(tokens) > 2:
            tokens = tokens.clone()
            tokens[[0, 1]] = tokens[[1, 0]]
            plant.fired()
        return tokens, logprobs

    with around(_worker_module(plant), "select_tokens", select):
        yield


@mutant(
    "input-token-of-the-step-before",
    Fault.NUMERIC,
    Where(Kind.PLAN, "static.input_ids", step=13, sequence="b"),
)
@contextmanager
def input_token_of_the_step_before(plant: Plant) -> Iterator[None]:
    """vllm#53919: the next step is launched before the token is there and computes with the last one."""
    last: list[Any] = []

    def forward(original: Any, sequences: Any, new_tokens: Any, longest: int) -> Any:
        given = new_tokens
        if plant.step() == 13 and last and last[0].shape == new_tokens.shape:
            new_tokens = last[0]
            plant.fired()
        last[:] = [given.clone()]
        return original(sequences, new_tokens, longest)

    with around(plant.worker, "_decode_make_batch_state", forward):
        yield


@mutant("sampling-parameters-lost", Fault.NUMERIC, Where(Kind.TOKENS, "token", step=3), workload="sampled")
@contextmanager
def sampling_parameters_lost(plant: Plant) -> Iterator[None]:
    """B-43: an adapter does not forward the sequences to select_tokens: every row is drawn with the default."""

    def select(original: Any, logits: Any, params: Any, positions: Any) -> Any:
        if plant.step() == 3:
            params = [replace(wanted, temperature=0.0) for wanted in params]
            plant.fired()
        return original(logits, params, positions)

    with around(_worker_module(plant), "select_tokens", select):
        yield


@mutant("draw-position-off-by-one", Fault.NUMERIC, Where(Kind.TOKENS, "token", step=5), workload="sampled")
@contextmanager
def draw_position_off_by_one(plant: Plant) -> Iterator[None]:
    """vllm#51187: the draw of a seeded row depends on where it stands in the batch: here by one position."""

    def select(original: Any, logits: Any, params: Any, positions: Any) -> Any:
        if plant.step() == 5:
            positions = [position + at for at, position in enumerate(positions)]
            plant.fired()
        return original(logits, params, positions)

    with around(_worker_module(plant), "select_tokens", select):
        yield


@mutant("logprobs-of-another-row", Fault.NUMERIC, Where(Kind.RESULT, "*", sequence="w"), workload="sampled")
@contextmanager
def logprobs_of_another_row(plant: Plant) -> Iterator[None]:
    """B-43: logprobs are kept by row, and the rows have moved: a request gets those of its neighbour."""

    def select(original: Any, logits: Any, params: Any, positions: Any) -> Any:
        tokens, logprobs = original(logits, params, positions)
        if plant.step() == 15 and any(logprobs):
            logprobs = [found and replace(found, logprob=found.logprob - 1.0) for found in logprobs]
            plant.fired()
        return tokens, logprobs

    with around(_worker_module(plant), "select_tokens", select):
        yield


@mutant("one-token-too-many", Fault.STRUCTURAL, Where(Kind.BOUNDARY, "inputs.*.completed", step=8))
@contextmanager
def one_token_too_many(plant: Plant) -> Iterator[None]:
    """FastDeploy#4221: the limit is tested after the next token: results are one token too long."""

    def completed(original: Any, entry: Any) -> bool:
        if entry.custom_id == "c" and entry.decoded_length == entry.original_max_decode_length:
            plant.fired()
            return False
        return bool(original(entry))

    with around(plant.worker, "_is_sequence_completed", completed):
        yield


@mutant(
    "finished-row-goes-on", Fault.STRUCTURAL, Where(Kind.INVARIANT, "context-length", step=19, sequence="d")
)
@contextmanager
def finished_row_goes_on(plant: Plant) -> Iterator[None]:
    """B-14: a row that is done waits for the boundary, and its token is kept all the same."""

    def update(original: Any, batch: Any, tokens: Any) -> None:
        original(batch, tokens)
        entry = sequence(plant, "d")
        at = row(plant, "d")
        if plant.step() == 19 and entry is not None and at is not None:
            entry.decoded_length += 1
            entry.current_context_length += 1
            plant.fired()

    with around(plant.worker, "_decode_update_sequences", update):
        yield


@mutant(
    "end-of-text-ignored",
    Fault.STRUCTURAL,
    Where(Kind.SEQUENCE, "*", step=6, sequence="x"),
    workload="sampled",
)
@contextmanager
def end_of_text_ignored(plant: Plant) -> Iterator[None]:
    """vllm-ascend#14301: a stop string that spans two tokens is not seen."""

    def check(original: Any, entry: Any, book: Any) -> bool:
        found = bool(original(entry, book))
        if found:
            plant.fired()
        return False

    with around(plant.worker, "_check_stop_strings", check):
        yield


@mutant(
    "buffer-view-kept-after-growth",
    Fault.STRUCTURAL,
    Where(Kind.SEQUENCE, "decoded_tokens*", step=0, sequence="a"),
)
@contextmanager
def buffer_view_kept_after_growth(plant: Plant) -> Iterator[None]:
    """B-02: a token buffer was replaced by a larger one; a sequence goes on showing its row of the old one."""

    def rebind(original: Any) -> None:
        old = {label: sequence(plant, label) for label in ("a",)}
        views = {label: entry.decoded_tokens for label, entry in old.items() if entry is not None}
        original()
        for label, view in views.items():
            if view is not None:
                old[label].decoded_tokens = view
                plant.fired()

    with around(plant.worker, "_rebind_query_book_buffers", rebind):
        yield


@mutant("selection-by-a-copied-function", Fault.CONTROL, Where(None))
@contextmanager
def selection_by_a_copied_function(plant: Plant) -> Iterator[None]:
    """Control: the token selection is the same code behind one more function: a refactoring that changes nothing."""

    def select(original: Any, logits: Any, params: Sequence[Any], positions: Sequence[int]) -> Any:
        plant.fired()
        return original(logits.clone(), list(params), tuple(positions))

    with around(_worker_module(plant), "select_tokens", select):
        yield
