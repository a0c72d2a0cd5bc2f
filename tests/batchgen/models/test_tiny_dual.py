"""tiny-dual against a dense model written out here: no pages, no batch, attention masked to the chosen keys."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from batchgen.config import ModelConfig
from batchgen.models import load_model, state_dict_for_reference
from tests.batchgen.models.paged import PagedRunner
from tests.batchgen.models.test_parity import random_prompts


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, theta: float) -> Tensor:
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[0])[:, None] * theta ** -(torch.arange(half) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def dense_logits(config: ModelConfig, w: dict[str, Tensor], ids: list[int]) -> Tensor:
    """Logits of the last position."""
    length, heads, groups = len(ids), config.num_attention_heads, config.num_key_value_heads
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config.num_hidden_layers):
        p = f"model.layers.{layer}."
        a = p + "self_attn."
        h = rms(x, w[p + "input_layernorm.weight"], config.rms_norm_eps)
        q, k, v = ((h @ w[f"{a}{n}_proj.weight"].T).view(length, -1, config.head_dim) for n in "qkv")
        q, k = rotate(q, config.rope_theta), rotate(k, config.rope_theta)
        iq = (h @ w[a + "indexer.q_proj.weight"].T).view(length, config.index_num_heads, -1)
        ik, iw = h @ w[a + "indexer.k_proj.weight"].T, h @ w[a + "indexer.weights_proj.weight"].T
        scores = (torch.relu(torch.einsum("thd,sd->ths", iq, ik)) * iw[:, :, None]).sum(1)
        mask = torch.zeros(length, length, dtype=torch.bool)
        for at in range(length):
            ranked = sorted(range(at + 1), key=lambda s, at=at: (-float(scores[at, s]), s))  # type: ignore[misc]
            mask[at, ranked[: config.index_topk]] = True
        k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
        logits = torch.einsum("thd,shd->hts", q, k) * config.head_dim**-0.5
        probs = torch.softmax(logits.masked_fill(~mask, float("-inf")), -1)
        x = x + torch.einsum("hts,shd->thd", probs, v).flatten(1) @ w[a + "o_proj.weight"].T
        h = rms(x, w[p + "post_attention_layernorm.weight"], config.rms_norm_eps)
        gate, up = h @ w[p + "mlp.gate_proj.weight"].T, h @ w[p + "mlp.up_proj.weight"].T
        x = x + (F.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    return rms(x, w["model.norm.weight"], config.rms_norm_eps)[-1] @ w["model.embed_tokens.weight"].T


def test_greedy_tokens_equal_the_dense_reference_beyond_topk() -> None:
    config, weights = state_dict_for_reference("tiny-dual")
    assert config.index_topk is not None
    prompts = random_prompts(8, longest=40, seed=11)
    assert max(map(len, prompts)) > config.index_topk
    runner = PagedRunner(load_model("tiny-dual").model)
    rows = runner.generate(prompts, 12)
    for number, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        for step in range(12):
            expected = dense_logits(config, weights, prompt + row[:step])
            assert row[step] == int(expected.argmax())
            assert torch.allclose(runner.history[number][step], expected, atol=2e-3)


def test_the_selection_decides_the_text() -> None:
    """Were the index ignored, tiny-dual would write what the same weights write with full attention."""
    text = [token for prompt in random_prompts(6, longest=40, seed=12) for token in prompt]
    long, short = text[:60], text[:4]
    dual = PagedRunner(load_model("tiny-dual").model).generate([long, short], 12)
    full = PagedRunner(load_model("tiny").model).generate([long, short], 12)
    assert dual[0] != full[0] and dual[1] == full[1]
