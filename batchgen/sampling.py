"""From logits to tokens: greedy, or sampling that is a pure function of (row logits, seed, position).

No generator state exists, so a sequence that is moved, evicted or resumed draws the same tokens, whatever
it is batched with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["SamplingParams", "TokenLogprob", "select_tokens"]


@dataclass(frozen=True)
class SamplingParams:
    """What one request asks for; ``temperature`` 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    seed: int = 0
    logprobs: bool = False
    top_logprobs: int = 0
    ignore_eos: bool = False


@dataclass(frozen=True)
class TokenLogprob:
    """Natural log of the token's probability, and the ``top`` most likely (id, logprob) pairs."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def select_tokens(
    logits: Tensor, params: Sequence[SamplingParams], positions: Sequence[int]
) -> tuple[Tensor, list[TokenLogprob | None]]:
    """Choose one token per row of ``logits`` float32 [B, V] -> int64 [B] on the same device, and logprobs.

    ``positions`` are the positions that the new tokens will take in their sequences.  Greedy takes the first
    maximum; logprobs are those of the unscaled distribution.  FloatingPointError when a row has no finite
    maximum: its logits are damaged and no choice would mean anything.
    """
    if not logits.shape[0] == len(params) == len(positions):
        raise ValueError(
            f"select_tokens: {logits.shape[0]} rows, {len(params)} params, {len(positions)} positions"
        )
    if logits.shape[0] == 0:
        return torch.empty(0, dtype=torch.int64, device=logits.device), []
    best = logits.max(dim=1).values
    if not bool(torch.isfinite(best).all()):
        row = int((~torch.isfinite(best)).nonzero()[0])
        raise FloatingPointError(
            f"select_tokens: row {row} (position {positions[row]}) has the non-finite maximum {float(best[row])}"
        )
    tokens = logits.argmax(dim=1)
    logprobs: list[TokenLogprob | None] = []
    for row, (wanted, position) in enumerate(zip(params, positions, strict=True)):
        if wanted.temperature > 0:
            tokens[row] = _sample(logits[row], wanted, position)
        logprobs.append(_logprob(logits[row], int(tokens[row]), wanted) if wanted.logprobs else None)
    return tokens, logprobs


def _sample(row: Tensor, params: SamplingParams, position: int) -> int:
    scaled = row.to("cpu", torch.float64) / params.temperature
    ordered = torch.sort(torch.softmax(scaled, 0), descending=True, stable=True)
    cumulative = ordered.values.cumsum(0)
    # The nucleus: the shortest prefix that holds top_p of the mass; never empty.
    kept = int((cumulative < params.top_p).sum()) + 1
    kept = min(kept, int((ordered.values > 0).sum()))
    mass = cumulative[:kept]
    draw = _uniform(params.seed, position) * float(mass[-1])
    return int(ordered.indices[min(int((mass <= draw).sum()), kept - 1)])


def _uniform(seed: int, position: int) -> float:
    """A number in [0, 1) fixed by seed and position."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _logprob(row: Tensor, token: int, params: SamplingParams) -> TokenLogprob:
    values = torch.log_softmax(row.to("cpu", torch.float64), 0)
    top = torch.sort(values, descending=True, stable=True)
    count = min(params.top_logprobs, values.shape[0])
    pairs = zip(top.indices[:count].tolist(), top.values[:count].tolist(), strict=True)
    return TokenLogprob(token, float(values[token]), tuple(pairs))
