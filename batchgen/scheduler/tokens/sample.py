"""One row of logits -> one token: a pure function of the row, its logits and its seed, whatever it is batched with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from batchgen.sampling import TokenLogprob, draw, token_logprob, uniform
from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, TokenIds
from batchgen.scheduler.tokens.adaptive import adapt
from batchgen.scheduler.tokens.penalties import apply_penalties, penalty_history
from batchgen.scheduler.tokens.pipeline import Stage, run_stages
from batchgen.scheduler.tokens.staging import Row

U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sampled:
    """`error`: no token can be chosen, and why; `token` then means nothing."""

    token: int
    logprob: TokenLogprob | None = None
    error: str | None = None


def step_seed(row: ActiveSeq, counts_outputs: bool) -> int:
    """The seed of the row's next token. Counting draws, a token that is dropped takes its draw with it."""
    return (row.sampling.seed + (len(row.output_tokens) if counts_outputs else row.draws)) & U64


def sample_row(
    logits: Row, row: ActiveSeq, ids: TokenIds, adaptive_sampling: bool, sched: SchedCtx
) -> Sampled:
    """Adaptive temperature on the raw `logits`, then the stages, penalties and bias, then the choice.

    `logits` are overwritten; the log probability is that of the distribution chosen from, before the temperature.
    """
    sampling = row.sampling
    if sched.levers.force_temp_zero:
        return Sampled(int(logits.argmax()))
    temperature = adapt(row, logits) if adaptive_sampling else sampling.temperature
    own = row.ids if sched.quirks.row_token_ids_decide else ids
    chosen = run_stages(logits, Stage(row, ids, own, sched))
    if chosen is None:
        if not sampling.is_neutral:
            history = penalty_history(row.output_tokens, ids.tool_call_end, sampling.penalty_window)
            apply_penalties(logits, sampling, history)
        largest = float(logits.max())
        if not np.isfinite(largest):
            return Sampled(0, error=f"no token can be chosen: the largest logit is {largest}")
        chosen = int(logits.argmax())
        if temperature > 0:
            chosen = draw(
                torch.from_numpy(logits),
                temperature,
                uniform(step_seed(row, sched.quirks.seed_reused_after_drop), 0),
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                min_p=sampling.min_p,
                top_n_sigma=sampling.top_n_sigma,
            )
    if sampling.top_logprobs is None:
        return Sampled(chosen)
    return Sampled(chosen, token_logprob(torch.from_numpy(logits), chosen, sampling.top_logprobs))
