"""One row of logits to one token: the host's choice against the definition written out, seeds, log probabilities."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgen.sampling import uniform
from batchgen.scheduler.sequences import ActiveSeq, RowSampling, Thinking, ToolCalls
from batchgen.scheduler.tokens.sample import sample_row
from tests.batchgen.scheduler.tokens.world import (
    CALL,
    CALL_END,
    EOS,
    IDS,
    THINK_END,
    THINK_START,
    VOCAB,
    WORDS,
    make_row,
    make_sched,
    peak,
    step,
)
from tests.batchgen.scheduler.tokens.world import settings as context

F = np.float32
NOTHING = F(-np.inf)


def naive_logits(raw: list[float], row: ActiveSeq) -> list[np.float32] | int:
    """The pipeline in plain words: the logits to choose from, or the token that must be."""
    x, out, think = [F(v) for v in raw], row.output_tokens, row.thinking
    if len(out) < row.min_tokens:
        x[EOS] = NOTHING
    if think.inside and out and out[-1] in WORDS.mid_word:
        x[THINK_END] = NOTHING
    if think.ended:
        x[THINK_END] = x[THINK_START] = NOTHING
    if think.inside:
        x[CALL] = NOTHING
    elif row.tools.suppressed:
        x[CALL] -= F(12)
    if think.inside and think.force_end:
        limit = 3 * think.budget if think.budget is not None else 2048
        late = think.tokens >= limit or think.deferred >= 64
        if late or (not think.in_code_fence and (not out or out[-1] in WORDS.sentence_end)):
            return THINK_END
    if think.just_ended and row.tools.required:
        return CALL
    history = out[len(out) - out[::-1].index(CALL_END) :] if CALL_END in out else out
    history = history[-row.sampling.penalty_window :]
    wanted = row.sampling
    for token in set(history):
        r = F(wanted.repetition_penalty)
        x[token] = x[token] / r if x[token] > 0 else x[token] * r
        times = F(wanted.frequency_penalty) * F(history.count(token))
        if wanted.presence_penalty or wanted.frequency_penalty:
            x[token] -= F(wanted.presence_penalty) + times
    for token in range(VOCAB):
        longest = 0
        for at in range(1, len(history)):
            same = 0
            while same < at and history[at - 1 - same] == history[len(history) - 1 - same]:
                same += 1
            if history[at] == token:
                longest = max(longest, same)
        less = wanted.lz_penalty * math.log2(1 + longest) if longest >= 3 else 0.0
        if longest >= wanted.dry_allowed_length and wanted.dry_multiplier:
            less += wanted.dry_multiplier * math.exp(
                (longest - wanted.dry_allowed_length) * math.log(wanted.dry_base)
            )
        if less:
            x[token] -= F(less)
        x[token] += F(wanted.logit_bias.get(token, 0.0))
    return x


def naive_choice(x: list[np.float32], wanted: RowSampling, at: float) -> int:
    if wanted.temperature == 0:
        return int(np.argmax(x))
    order = sorted(range(VOCAB), key=lambda token: (-x[token], token))
    scaled = [float(v) / wanted.temperature for v in x]
    best = scaled[order[0]]
    weights = [math.exp(v - best) for v in scaled]
    probs = [w / sum(weights) for w in weights]
    may = [token for token in order if probs[token] > 0]
    if wanted.top_k:
        may = may[: wanted.top_k]
    if wanted.top_n_sigma:
        finite = [float(v) for v in x if np.isfinite(v)]
        mean = sum(finite) / len(finite)
        sigma = math.sqrt(sum((v - mean) ** 2 for v in finite) / len(finite))
        may = [token for token in may if x[token] >= x[order[0]] - wanted.top_n_sigma * sigma]
    total, nucleus = 0.0, []
    for token in may:
        if nucleus and total >= wanted.top_p * sum(probs[t] for t in may):
            break
        nucleus.append(token)
        total += probs[token]
    nucleus = [token for token in nucleus if probs[token] >= wanted.min_p * probs[order[0]]]
    target, total = at * sum(probs[token] for token in nucleus), 0.0
    for token in nucleus:
        total += probs[token]
        if total > target:
            return token
    return nucleus[-1]


@st.composite
def rows(draw: Any) -> ActiveSeq:
    tiny = st.sampled_from([0.0, 0.0, 0.3, 1.1])
    sampling = RowSampling(
        temperature=draw(st.sampled_from([0.0, 0.4, 1.0, 2.5])),
        top_k=draw(st.sampled_from([0, 0, 1, 7])),
        top_p=draw(st.sampled_from([1.0, 0.37, 0.913, 0.0])),
        top_n_sigma=draw(tiny),
        min_p=draw(st.sampled_from([0.0, 0.0, 0.073, 1.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3, 0.7])),
        presence_penalty=draw(tiny),
        frequency_penalty=draw(tiny),
        penalty_window=draw(st.sampled_from([4, 256])),
        lz_penalty=draw(tiny),
        dry_multiplier=draw(tiny),
        logit_bias=draw(st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-3.0, 2.0]), max_size=3)),
        seed=draw(st.integers(0, 2**64 - 1)),
        top_logprobs=draw(st.sampled_from([None, 2])),
    )
    inside = draw(st.booleans())
    thinking = Thinking(
        inside=inside,
        ended=not inside and draw(st.booleans()),
        force_end=inside and draw(st.booleans()),
        in_code_fence=inside and draw(st.booleans()),
        budget=draw(st.sampled_from([None, 2, 50])),
        tokens=draw(st.sampled_from([0, 6, 300])),
        deferred=draw(st.sampled_from([0, 64])),
    )
    thinking.just_ended = thinking.ended and draw(st.booleans())
    words = st.sampled_from([1, 2, 3, 28, CALL_END])
    return make_row(
        outputs=draw(st.lists(words, max_size=14)),
        sampling=sampling,
        thinking=thinking,
        tools=ToolCalls(required=draw(st.booleans()), suppressed=draw(st.booleans())),
        min_tokens=draw(st.sampled_from([0, 3, 10])),
    )


@settings(max_examples=300, deadline=None)
@given(row=rows(), seed=st.integers(0, 10_000))
def test_the_hosts_choice_is_that_of_the_definition(row: ActiveSeq, seed: int) -> None:
    raw = np.random.default_rng(seed).normal(size=VOCAB).astype(np.float32) * 3
    expected = naive_logits(raw.tolist(), deepcopy(row))
    if not isinstance(expected, int):
        at = uniform((row.sampling.seed + row.draws) % 2**64, 0)
        logits, expected = expected, naive_choice(expected, row.sampling, at)
    else:
        logits = [NOTHING] * VOCAB
        logits[expected] = F(0)
    found = sample_row(raw, row, IDS, False, context(vocabulary=WORDS))
    assert (found.token, found.error) == (expected, None)
    if row.sampling.top_logprobs is not None:
        mass = math.log(sum(math.exp(float(v)) for v in logits))
        assert found.logprob is not None and found.logprob.token_id == expected
        assert found.logprob.logprob == pytest.approx(float(logits[expected]) - mass, abs=1e-5)
        best = sorted(range(VOCAB), key=lambda token: (-logits[token], token))[:2]
        assert [token for token, _ in found.logprob.top] == [t for t in best if np.isfinite(logits[t])]


def draws(row: ActiveSeq, count: int) -> list[int]:
    """Of `count` steps in which all words are as likely."""
    flat = np.zeros(VOCAB, np.float32)
    flat[28:] = -np.inf
    taken = []
    for _ in range(count):
        step([row], [flat])
        taken.append(row.last_token)
    return taken


def test_seed_and_position_decide_the_draw() -> None:
    one = draws(make_row(sampling=RowSampling(1.0, seed=5)), 20)
    assert one == draws(make_row(sampling=RowSampling(1.0, seed=5)), 20)
    assert one != draws(make_row(sampling=RowSampling(1.0, seed=900)), 20)
    assert len(set(one)) > 8
    # Resumed in the middle, the row goes on as it would have.
    later = make_row(outputs=one[:7], sampling=RowSampling(1.0, seed=5))
    assert draws(later, 13) == one[7:]


def test_the_seed_wraps_at_64_bits() -> None:
    last = make_row(sampling=RowSampling(1.0, seed=2**64 - 1))
    first = make_row(sampling=RowSampling(1.0, seed=0))
    assert draws(last, 20)[1:] == draws(first, 19)


def test_greedy_takes_the_first_maximum() -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[7, 9]] = 3.0
    assert sample_row(logits, make_row(), IDS, False, make_sched()).token == 7


def test_a_row_that_wants_no_log_probability_gets_none() -> None:
    assert sample_row(peak(3), make_row(), IDS, False, make_sched()).logprob is None
    wanted = sample_row(
        peak(3), make_row(sampling=RowSampling(top_logprobs=0)), IDS, False, make_sched()
    ).logprob
    assert wanted is not None and wanted.top == ()
