"""From logits to tokens: greedy, or sampling that is a pure function of (row logits, seed, position).

No generator state exists, so a sequence that is moved, evicted or resumed draws the same tokens, whatever
it is batched with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["SamplingParams", "TokenLogprob", "draw", "select_tokens", "token_logprob", "uniform"]


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
            at = uniform(wanted.seed, position)
            tokens[row] = draw(logits[row], wanted.temperature, at, top_p=wanted.top_p)
        chosen = int(tokens[row])
        logprobs.append(token_logprob(logits[row], chosen, wanted.top_logprobs) if wanted.logprobs else None)
    return tokens, logprobs


def draw(
    row: Tensor,
    temperature: float,
    at: float,
    *,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    top_n_sigma: float = 0.0,
) -> int:
    """The token at quantile ``at`` in [0, 1) of one row of logits [V], the likeliest first; ``temperature`` > 0.

    Those that may be drawn: at most ``top_k`` (0: all), with a logit within ``top_n_sigma`` standard deviations of
    the best (0: all), among these the shortest prefix that holds ``top_p`` of their mass, and a probability of at
    least ``min_p`` times that of the best. The best one always may.
    """
    scaled = row.to("cpu", torch.float64) / temperature
    probs = torch.softmax(scaled, 0).numpy()
    possible = kept = int(np.count_nonzero(probs))
    if top_k > 0:
        kept = min(kept, top_k)
    if top_n_sigma > 0:
        kept = min(kept, _within_sigma(scaled.numpy(), top_n_sigma))
    likely = possible if min_p <= 0 else max(1, int((probs >= min_p * probs.max()).sum()))
    uncut = kept == likely == possible and top_p >= 1
    quantile = at * float(probs.sum()) if uncut else 0.0
    # As few are sorted as the draw needs: a whole vocabulary only where it may fall anywhere in it.
    size = kept if kept < possible else min(_FIRST, kept)
    while True:
        ids = _likeliest(probs, size)
        mass = probs[ids].cumsum()
        if uncut:
            if size == kept or float(mass[-1]) > quantile:
                return int(ids[min(int((mass <= quantile).sum()), size - 1)])
        else:
            # The nucleus: the shortest prefix that holds top_p of the mass; never empty.
            share = top_p if kept == possible else top_p * float(mass[-1])
            nucleus = min(int((mass < share).sum()) + 1, kept, likely)
            if nucleus <= size:
                quantile = at * float(mass[nucleus - 1])
                return int(ids[min(int((mass[:nucleus] <= quantile).sum()), nucleus - 1)])
        size = min(size * 8, kept)


_FIRST = 1024


def _likeliest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest, the largest first, and of equal ones the first."""
    if count == 0 or count * 4 >= len(values):
        return np.argsort(-values, kind="stable")[:count]
    least = np.partition(values, len(values) - count)[len(values) - count]
    ids = np.flatnonzero(values >= least)
    return ids[np.argsort(-values[ids], kind="stable")][:count]


def _within_sigma(scaled: NDArray[np.float64], sigmas: float) -> int:
    """How many logits lie within so many standard deviations of the best: a bound that no temperature moves."""
    # By numpy: torch splits a long sum by the number of its threads, and the last bit would depend on it.
    finite = scaled[np.isfinite(scaled)]
    return max(1, int((finite >= finite.max() - sigmas * finite.std()).sum()))


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) fixed by seed and position."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def token_logprob(row: Tensor, token: int, top: int) -> TokenLogprob:
    """Of the distribution that ``row`` is, unscaled, with the ``top`` most likely tokens that are possible at all."""
    values = torch.log_softmax(row.to("cpu", torch.float64), 0).numpy()
    ids = _likeliest(values, min(top, int(np.isfinite(values).sum())))
    pairs = zip(ids.tolist(), values[ids].tolist(), strict=True)
    return TokenLogprob(token, float(values[token]), tuple(pairs))
