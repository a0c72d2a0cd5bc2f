"""tiny-hybrid against a plain model written out here, and its paths against each other, bit for bit."""

from __future__ import annotations

import math
import random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from batchgen.attention import AttnWrapperBase
from batchgen.config import ModelConfig
from batchgen.kv import StateSlotPool
from batchgen.models import PagedCausalLM, load_model, state_dict_for_reference, states
from batchgen.models.states import Route, route_of
from tests.batchgen.models.paged import PagedRunner
from tests.batchgen.models.test_parity import random_prompts
from tests.batchgen.models.test_tiny_dual import rms, rotate

PLAIN = settings(deadline=None, max_examples=15, phases=[Phase.explicit, Phase.generate])


def recurrence(config: ModelConfig, w: dict[str, Tensor], p: str, x: Tensor) -> Tensor:
    """One token after the other, no two of them in one operation."""
    r, state = p + "recurrence.", torch.zeros(config.recurrent_width)
    inputs, out = [torch.zeros(config.recurrent_width)] * (config.recurrent_conv - 1), []
    for token in x:
        inputs.append(w[r + "x_proj.weight"] @ token)
        taps = inputs[-config.recurrent_conv :]
        c = sum(tap * k for tap, k in zip(taps, w[r + "conv.weight"], strict=True))
        forget = torch.sigmoid(w[r + "decay_gate.weight"] @ c + w[r + "decay_gate.bias"])
        enter = torch.sigmoid(w[r + "input_gate.weight"] @ c + w[r + "input_gate.bias"])
        a = torch.sigmoid(-w[r + "decay"]).pow(8 * forget)
        state = a * state + torch.sqrt(1 - a * a) * enter * c
        out.append(w[r + "out_proj.weight"] @ (state * F.gelu(w[r + "gate_proj.weight"] @ token)))
    return torch.stack(out)


def attention(config: ModelConfig, w: dict[str, Tensor], p: str, h: Tensor) -> Tensor:
    a, length = p + "self_attn.", len(h)
    q, k, v = ((h @ w[f"{a}{n}_proj.weight"].T).view(length, -1, config.head_dim) for n in "qkv")
    q, k = rotate(q, config.rope_theta), rotate(k, config.rope_theta)
    k, v = (t.repeat_interleave(config.num_attention_heads // config.num_key_value_heads, 1) for t in (k, v))
    scores = torch.einsum("thd,shd->hts", q, k) / math.sqrt(config.head_dim)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    probs = torch.softmax(scores.masked_fill(future, float("-inf")), -1)
    return torch.einsum("hts,shd->thd", probs, v).flatten(1) @ w[a + "o_proj.weight"].T


def plain_logits(config: ModelConfig, w: dict[str, Tensor], ids: list[int]) -> Tensor:
    """float64 logits of every position."""
    w = {name: tensor.double() for name, tensor in w.items()}
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config.num_hidden_layers):
        p = f"model.layers.{layer}."
        h = rms(x, w[p + "input_layernorm.weight"], config.rms_norm_eps)
        x = x + (recurrence if layer in config.recurrent_layers else attention)(config, w, p, h)
        h = rms(x, w[p + "post_attention_layernorm.weight"], config.rms_norm_eps)
        gate, up = h @ w[p + "mlp.gate_proj.weight"].T, h @ w[p + "mlp.up_proj.weight"].T
        x = x + (F.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    return rms(x, w["model.norm.weight"], config.rms_norm_eps) @ w["model.embed_tokens.weight"].T


@pytest.mark.parametrize("row_exact", [False, True])
def test_greedy_tokens_equal_the_plain_model(row_exact: bool) -> None:
    config, weights = state_dict_for_reference("tiny-hybrid")
    runner = PagedRunner(load_model("tiny-hybrid", row_exact=row_exact).model)
    prompts = random_prompts(8, longest=40, seed=11)
    rows = runner.generate(prompts, 24)
    for number, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        expected = plain_logits(config, weights, prompt + row[:-1])[len(prompt) - 1 :]
        assert row == expected.argmax(1).tolist()
        assert torch.allclose(torch.stack(runner.history[number]).double(), expected, atol=2e-3)


def hybrid(row_exact: bool = True) -> PagedCausalLM:
    model = load_model("tiny-hybrid", row_exact=row_exact).model
    model.pack_for_decode()
    return model


def started(model: PagedCausalLM, prompts: dict[int, list[int]], order: list[int]) -> PagedRunner:
    """Prompts prefilled; their slots were given in `order`."""
    runner = PagedRunner(model)
    assert runner.states is not None
    runner.states.allocate(order)
    runner.prefill(prompts)
    return runner


def state_of(runner: PagedRunner, gid: int) -> Tensor:
    assert runner.states is not None
    return runner.states.states[runner.states.slots_for([gid])[0]].clone()


@pytest.mark.parametrize(
    ("slots", "route"),
    [
        ([], Route.SINGLE),
        ([5], Route.SINGLE),
        ([0, 1, 2], Route.BATCHED),
        ([4, 5, 6], Route.BATCHED),
        ([5, 4, 6], Route.UNSORTED),
        ([6, 5, 4], Route.UNSORTED),
        ([0, 1, 3], Route.GAP),
        ([3, 1, 0], Route.GAP),
        ([2, 2], Route.GAP),
    ],
)
def test_the_slots_of_the_rows_decide_the_route(slots: list[int], route: Route) -> None:
    assert route_of(slots) is route


@given(st.lists(st.integers(0, 30), min_size=2, max_size=12, unique=True))
def test_sorting_is_what_an_unsorted_batch_lacks_and_never_helps_over_a_gap(slots: list[int]) -> None:
    after = route_of(sorted(slots))
    assert after is (Route.GAP if route_of(slots) is Route.GAP else Route.BATCHED)


@PLAIN
@given(st.randoms(use_true_random=False))
def test_rows_in_any_order_and_any_slots_give_the_same_bits_and_are_counted(rng: random.Random) -> None:
    model = hybrid()
    prompts = dict(enumerate(random_prompts(5, longest=12, seed=rng.randrange(1 << 30))))
    expected = started(model, prompts, list(prompts))
    slots = rng.sample(range(12), 12)
    runner = started(model, prompts, [s if s in prompts else 100 + s for s in slots])
    assert runner.states is not None
    counted = dict(model.recurrence_counts().steps)
    for _ in range(4):
        expected.decode(list(prompts))
        counted[Route.BATCHED] = counted.get(Route.BATCHED, 0) + 1
        rows = rng.sample(list(prompts), 5)
        route = route_of(runner.states.slots_for(rows).tolist())
        counted[route] = counted.get(route, 0) + 1
        runner.decode(rows)
    assert model.recurrence_counts().steps == counted
    for gid in prompts:
        assert torch.equal(torch.stack(runner.history[gid]), torch.stack(expected.history[gid]))
        assert torch.equal(state_of(runner, gid), state_of(expected, gid))


@pytest.mark.parametrize("row_exact", [False, True])
def test_the_batched_recurrence_and_the_loop_leave_the_same_bits(row_exact: bool) -> None:
    model = hybrid(row_exact)
    prompts = dict(enumerate(random_prompts(6, longest=20, seed=2)))
    ends = []
    for batched in (True, False):
        assert model.recurrence is not None
        model.recurrence.batched = batched
        runner = started(model, prompts, [*range(50, 57), *prompts])  # base slot 7
        for _ in range(12):
            logits = runner.decode(list(prompts))
        ends.append((logits, torch.stack([state_of(runner, gid) for gid in prompts])))
    assert torch.equal(ends[0][0], ends[1][0]) and torch.equal(ends[0][1], ends[1][1])
    counts = model.recurrence_counts()
    assert counts.steps == {Route.BATCHED: 12, Route.OFF: 12}
    assert counts.batched_share == 0.5 and counts.fallback == {Route.OFF: 12}


def test_a_prefill_of_the_history_leaves_the_state_that_decoding_left() -> None:
    model = hybrid()
    prompts = dict(enumerate(random_prompts(4, longest=12, seed=8)))
    decoded = started(model, prompts, list(prompts))
    for steps in range(1, 20):
        decoded.decode([gid for gid in prompts if steps < 5 * (gid + 1)])
    histories = {gid: decoded.tokens[gid][:-1] for gid in prompts}
    assert len({len(history) for history in histories.values()}) == 4
    refilled = started(model, histories, list(reversed(prompts)))
    for gid in prompts:
        assert torch.equal(state_of(refilled, gid), state_of(decoded, gid))
        assert refilled.tokens[gid] == decoded.tokens[gid]


def test_a_prompt_shorter_than_the_convolution_starts_from_zeros() -> None:
    model = hybrid()
    together = started(model, {0: [65], 1: [65, 66], 2: list(range(65, 75))}, [0, 1, 2])
    alone = started(model, {1: [65, 66]}, [1])
    assert torch.equal(state_of(together, 1), state_of(alone, 1))
    assert state_of(together, 0)[:, 1:3].eq(0).all() and state_of(together, 0)[:, 3].ne(0).any()


def test_a_slot_s_former_state_does_not_reach_a_prefill() -> None:
    model, prompt = hybrid(), random_prompts(1, longest=9, seed=1)[0]
    clean = started(model, {0: prompt}, [0])
    runner = PagedRunner(model)
    assert runner.states is not None
    runner.states.allocate([0])
    runner.states.states.fill_(7.0)
    runner.prefill({0: prompt})
    assert torch.equal(state_of(runner, 0), state_of(clean, 0))
    assert torch.equal(runner.history[0][0], clean.history[0][0])


@pytest.mark.parametrize("part", [0, slice(1, None)])
def test_the_state_decides_the_text(part: int | slice) -> None:
    """Both the recurrence and the inputs that the convolution looks back at."""
    model, prompts = hybrid(), dict(enumerate(random_prompts(6, longest=30, seed=12)))
    kept, lost = started(model, prompts, list(prompts)), started(model, prompts, list(prompts))
    assert lost.states is not None
    lost.states.states[:, :, part] = 0
    for runner in (kept, lost):
        for _ in range(8):
            runner.decode(list(prompts))
    assert sum(kept.tokens[gid] != lost.tokens[gid] for gid in prompts) >= 4


def test_a_state_goes_on_in_another_slot_bit_for_bit() -> None:
    model, prompts = hybrid(), dict(enumerate(random_prompts(3, longest=20, seed=5)))
    stays, moves = started(model, prompts, list(prompts)), started(model, prompts, list(prompts))
    pool = moves.states
    assert pool is not None
    pool.keeps = lambda gid: True
    for runner in (stays, moves):
        for _ in range(3):
            runner.decode(list(prompts))
    pool.release(list(prompts))
    pool.states.fill_(7.0)
    assert pool.allocate([2, 0, 1]) == [0, 1, 2]
    for runner in (stays, moves):
        for _ in range(3):
            runner.decode(list(prompts))
    for gid in prompts:
        assert torch.equal(torch.stack(stays.history[gid]), torch.stack(moves.history[gid]))


@pytest.mark.parametrize("gathered", [False, True])
def test_padded_rows_touch_no_state_and_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, gathered: bool
) -> None:
    """`gathered`: as while a CUDA graph is captured, where slots cannot be read back."""
    model, prompts = hybrid(), dict(enumerate(random_prompts(4, longest=9, seed=3)))
    padded = started(model, prompts, [0, 1, 2, 3])
    assert padded.states is not None and model.recurrence is not None
    resting = state_of(padded, 3)
    monkeypatch.setattr(states, "_is_capturing", lambda tensor: gathered)
    model.bind_states(padded.states)
    AttnWrapperBase.state_slots = torch.tensor([0, 1, 2, -1, -1])
    AttnWrapperBase.phase = "decode"
    model.recurrence.begin_forward(5)
    layer = model.recurrence.layer(0)
    before = padded.states.states[:3, 0, 0].clone()
    decay, entering = torch.rand(5, 64), torch.rand(5, 64)
    out = layer.scan(decay, entering)
    assert torch.equal(out[:3], before * decay[:3] + entering[:3])
    assert torch.equal(padded.states.states[:3, 0, 0], out[:3])
    assert torch.equal(state_of(padded, 3), resting)
    window = layer.windows(torch.ones(5, 64), lambda windows: windows[:, 0])
    assert window.shape == (5, 64)
    assert padded.states.states[:3, 0, -1].eq(1).all() and torch.equal(state_of(padded, 3), resting)


def test_gathering_by_index_gives_the_bits_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts = hybrid(), dict(enumerate(random_prompts(4, longest=9, seed=4)))
    looped, gathered = started(model, prompts, [3, 0, 2, 1]), started(model, prompts, [3, 0, 2, 1])
    for _ in range(3):
        looped.decode(list(prompts))
    monkeypatch.setattr(states, "_is_capturing", lambda tensor: True)
    for _ in range(3):
        gathered.decode(list(prompts))
    for gid in prompts:
        assert torch.equal(torch.stack(looped.history[gid]), torch.stack(gathered.history[gid]))
        assert torch.equal(state_of(looped, gid), state_of(gathered, gid))


def test_bf16_weights_keep_states_in_float32() -> None:
    prompts = random_prompts(4, longest=20, seed=2)
    config, weights = state_dict_for_reference("tiny-hybrid")
    runner = PagedRunner(load_model("tiny-hybrid", dtype=torch.bfloat16).model)
    runner.prefill(dict(enumerate(prompts)))
    assert state_of(runner, 0).dtype == torch.float32
    for gid, prompt in enumerate(prompts):
        expected = plain_logits(config, weights, prompt)[-1]
        error = (runner.history[gid][0].double() - expected).norm() / expected.norm()
        assert 0 < error < 0.1


def test_what_is_not_bound_or_does_not_fit_is_said() -> None:
    model = hybrid()
    AttnWrapperBase.reset()
    AttnWrapperBase.phase = "prefill"
    ids = torch.tensor([65, 66])
    with pytest.raises(RuntimeError, match=r"call bind_states\(\) with a pool and bind"):
        model(ids, torch.arange(2))
    with pytest.raises(ValueError, match=r"of \(2, 4, 32\) torch.float32 cannot hold .* of \(2, 4, 64\)"):
        model.bind_states(StateSlotPool(2, (2, 4, 32)))
    with pytest.raises(ValueError, match=r"torch\.bfloat16 cannot hold"):
        model.bind_states(StateSlotPool(2, (2, 4, 64), dtype=torch.bfloat16))
    model.bind_states(StateSlotPool(2, (2, 4, 64)))
    AttnWrapperBase.state_slots = torch.tensor([0])
    with pytest.raises(RuntimeError, match=r"without AttnWrapperBase\.cu_seqlens"):
        model(ids, torch.arange(2))
    AttnWrapperBase.phase = "decode"
    AttnWrapperBase.state_slots = torch.tensor([-1, 0])
    assert model.recurrence is not None
    with pytest.raises(RuntimeError, match="a padded row is before a live one"):
        model.recurrence.begin_forward(2)


def test_only_models_with_a_recurrence_have_states() -> None:
    tiny = load_model("tiny").model
    assert tiny.state_shape() is None and tiny.recurrence_counts().batched_share is None
    assert hybrid().state_shape() == (2, 4, 64) and hybrid().kv_pool_shape() == (2, 2, 16)
