"""Penalties and bias: logits changed by what the row has written, in place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from batchgen.scheduler.sequences import RowSampling
from batchgen.scheduler.tokens.staging import Row

#: The LZ penalty begins where this many tokens repeat.
LZ_FROM = 3


def penalty_history(outputs: Sequence[int], tool_call_end: int | None, window: int) -> Sequence[int]:
    """What penalties look at: the outputs after the last `</tool_call>`, the last `window` of them (0: all). Each
    call of several starts as the first did."""
    start = max(0, len(outputs) - window) if window > 0 else 0
    for index in range(len(outputs) - 1, start - 1, -1):
        if outputs[index] == tool_call_end:
            return outputs[index + 1 :]
    return outputs[start:]


def apply_penalties(logits: Row, sampling: RowSampling, history: Sequence[int]) -> None:
    """Repetition (once a distinct token), presence, frequency, LZ, DRY, then bias. Ids beyond the vocabulary are
    passed over."""
    counts = Counter(token for token in history if token < len(logits))
    if counts:
        ids = np.fromiter(counts.keys(), np.int64)
        if sampling.repetition_penalty != 1.0 and sampling.repetition_penalty > 0:
            seen = logits[ids]
            factor = np.float32(sampling.repetition_penalty)
            logits[ids] = np.where(seen > 0, seen / factor, seen * factor)
        if sampling.presence_penalty or sampling.frequency_penalty:
            times = np.fromiter(counts.values(), np.float32)
            logits[ids] -= sampling.presence_penalty + sampling.frequency_penalty * times
    if sampling.lz_penalty > 0 or sampling.dry_multiplier > 0:
        for token, length in continuations(history).items():
            if token < len(logits):
                logits[token] -= _continuing(sampling, length)
    for token, bias in sampling.logit_bias.items():
        if 0 <= token < len(logits):
            logits[token] += bias


def continuations(history: Sequence[int]) -> dict[int, int]:
    """Each token that would go on as the history went on before -> the longest end of it, in tokens, that came
    before that token."""
    found: dict[int, int] = {}
    backwards = history[::-1]
    for start in range(1, len(backwards)):
        if backwards[start] == backwards[0]:
            length = 1
            while start + length < len(backwards) and backwards[start + length] == backwards[length]:
                length += 1
            token = backwards[start - 1]
            found[token] = max(found.get(token, 0), length)
    return found


def _continuing(sampling: RowSampling, length: int) -> float:
    less = 0.0
    if sampling.lz_penalty > 0 and length >= LZ_FROM:
        less += sampling.lz_penalty * math.log2(1 + length)
    if sampling.dry_multiplier > 0 and length >= sampling.dry_allowed_length:
        # Beyond float range the token is simply out.
        exponent = min((length - sampling.dry_allowed_length) * math.log(max(sampling.dry_base, 1.0)), 80.0)
        less += sampling.dry_multiplier * math.exp(exponent)
    return less
