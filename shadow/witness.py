"""Keeps the first row of logits that diverges, with the tokens that led to it, for the arbiter to recompute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shadow.observation import Event, Key, Kind, Row, tokens_of

if TYPE_CHECKING:
    from shadow.arbiter import Arbitration
    from shadow.diff import Comparison
    from shadow.lockstep import Reviewer
    from shadow.messages import Setup


@dataclass(frozen=True, eq=False)
class Testimony:
    """`decoded`: the tokens that followed the prompt of `sequence`, of request file number `batch`, so far."""

    batch: int
    step: int
    sequence: str
    decoded: tuple[int, ...]
    legacy: np.ndarray
    candidate: np.ndarray


class Witness:
    """A reviewer (see shadow.lockstep) around another one, which it leaves as it is."""

    def __init__(self, review: Reviewer) -> None:
        self._review = review
        self._decoded: dict[tuple[int, str], list[int]] = {}
        self.testimony: Testimony | None = None

    def __call__(self, control: Event, candidate: Event, comparison: Comparison) -> Comparison:
        comparison = self._review(control, candidate, comparison)
        if self.testimony is None:
            for mismatch in comparison.mismatches:
                if (
                    mismatch.kind is Kind.LOGITS
                    and mismatch.score is not None
                    and mismatch.sequence is not None
                ):
                    self.testimony = self._testimony(control, candidate, mismatch.sequence)
                    break
            for label, token in tokens_of(control).items():
                self._decoded.setdefault((control.batch, label), []).append(token)
        return comparison

    def _testimony(self, control: Event, candidate: Event, sequence: str) -> Testimony | None:
        rows = [event.values.get(Key(Kind.LOGITS, sequence, "logits")) for event in (control, candidate)]
        if not isinstance(rows[0], Row) or not isinstance(rows[1], Row):
            return None
        decoded = tuple(self._decoded.get((control.batch, sequence), ()))
        values = rows[0].values, rows[1].values
        return Testimony(control.batch, control.step, sequence, decoded, *values)


def hear(testimony: Testimony, control: Setup, limit: float) -> Arbitration:
    """Recomputes the row in float64 with this installation's reference; the control's options say which model.

    LookupError where the request files do not hold the sequence; batchgen.models.ModelLoadError.
    """
    import torch

    from batchgen.models import load_model
    from batchgen.requests import LineError, RequestDefaults, parse_requests, prepare_request
    from shadow.arbiter import arbitrate_position
    from shadow.noise.conditions import conditions_of
    from shadow.reference import Reference

    here = conditions_of(control)
    seed, dtype = int(str(control.options.get("seed", 0))), getattr(torch, here.dtype)
    loaded = load_model(here.model, seed=seed)
    with open(control.batches[testimony.batch], "rb") as file:
        parsed, _ = parse_requests(file, RequestDefaults())
    request = next((r for r in parsed if r.custom_id == testimony.sequence), None)
    context = loaded.config.max_position_embeddings
    prepared = None
    if request is not None:
        prepared = prepare_request(request, request.custom_id, loaded.tokenizer, context)
    if prepared is None or isinstance(prepared, LineError):
        raise LookupError(f"no request {testimony.sequence} in {control.batches[testimony.batch]}")
    tokens = [*prepared.prompt_token_ids, *testimony.decoded]
    reference = Reference.load(here.model, dtype=dtype, seed=seed)
    return arbitrate_position(
        reference, tokens, testimony.legacy, testimony.candidate, limit=limit, dtype=dtype
    )
