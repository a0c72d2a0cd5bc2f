"""The paged model against Hugging Face's implementation on the same weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from batchgen.config import RopeScaling
from batchgen.models import PagedCausalLM, load_model, state_dict_for_reference
from batchgen.models.tiny import TINY_CONFIGS, random_state_dict
from batchgen.models.weights import MappingWeights
from tests.batchgen.models.paged import PagedRunner
from tests.batchgen.models.reference import hf_greedy, hf_logits, hf_model


def random_prompts(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(0, 264, (n,), generator=generator).tolist() for n in lengths]


@pytest.mark.parametrize("packed", [False, True])
def test_tiny_greedy_equals_hf_generate_for_many_random_prompts(packed: bool) -> None:
    config, tensors = state_dict_for_reference("tiny")
    model = load_model("tiny").model
    if packed:
        model.pack_for_decode()
    prompts = random_prompts(64, longest=40)
    ours = PagedRunner(model).generate(prompts, 16, batch=32)
    reference = hf_model(config, tensors)
    theirs = [
        row for start in range(0, 64, 32) for row in hf_greedy(reference, prompts[start : start + 32], 16)
    ]
    assert ours == theirs


@pytest.mark.parametrize("name", ["tiny", "tiny-hybrid"])
def test_tiny_text_is_varied_and_its_choices_are_clear(name: str) -> None:
    runner = PagedRunner(load_model(name).model)
    rows = runner.generate(random_prompts(32, longest=40), 32, batch=32)
    assert len({token for row in rows for token in row}) > 100
    assert sum(len(set(row)) for row in rows) / len(rows) > 10
    top = torch.stack([x for steps in runner.history.values() for x in steps]).topk(2).values
    margins = top[:, 0] - top[:, 1]
    assert margins.median() > 1.0
    assert (margins < 1e-3).float().mean() < 0.01


@pytest.mark.parametrize(
    "changes", [{"attention_bias": True}, {"mlp_bias": True}, {"tie_word_embeddings": False}]
)
def test_biases_and_an_own_head_equal_hf(changes: dict[str, bool]) -> None:
    config = replace(TINY_CONFIGS["tiny"], **changes)
    tensors = random_state_dict(config, seed=3)
    generator = torch.Generator().manual_seed(5)
    tensors["lm_head.weight"] = (
        tensors["model.embed_tokens.weight"]
        if config.tie_word_embeddings
        else torch.randn(config.vocab_size, config.hidden_size, generator=generator)
    )
    biased = (["q_proj", "k_proj", "v_proj", "o_proj"] if config.attention_bias else []) + (
        ["gate_proj", "up_proj", "down_proj"] if config.mlp_bias else []
    )
    for name in [n for n in tensors if any(part in n for part in biased)]:
        rows = tensors[name].shape[0]
        tensors[name.replace("weight", "bias")] = torch.randn(rows, generator=generator)
    source = MappingWeights(tensors, "test")
    model = PagedCausalLM(config, source, dtype=torch.float32, device=torch.device("cpu"))
    prompts = random_prompts(8, longest=20, seed=1)
    theirs = hf_greedy(hf_model(config, tensors), prompts, 12)
    assert PagedRunner(model).generate(prompts, 12) == theirs
    model.pack_for_decode()
    assert PagedRunner(model).generate(prompts, 12) == theirs


@pytest.mark.parametrize(
    ("scaling", "hf"),
    [
        (RopeScaling("linear", factor=2.0), {"rope_type": "linear", "factor": 2.0}),
        (
            RopeScaling("llama3", 8.0, 1.0, 4.0, 64),
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
    ],
)
def test_scaled_rotary_embedding_equals_hf(scaling: RopeScaling, hf: dict[str, object]) -> None:
    plain = TINY_CONFIGS["tiny"]
    config = replace(plain, rope_scaling=scaling)
    tensors = random_state_dict(config, seed=3)
    source = MappingWeights(tensors, "test")
    model = PagedCausalLM(config, source, dtype=torch.float32, device=torch.device("cpu"))
    head = {"lm_head.weight": tensors["model.embed_tokens.weight"]}
    parameters = {"rope_theta": config.rope_theta, **hf}
    reference = hf_model(config, tensors | head, rope_parameters=parameters)
    prompt = random_prompts(1, longest=120, seed=9)[0] * 3
    ours = PagedRunner(model).prefill({0: prompt})
    assert torch.allclose(ours[0], hf_logits(reference, prompt)[-1], atol=2e-4)
    assert not torch.allclose(ours[0], hf_logits(hf_model(plain, tensors | head), prompt)[-1], atol=1e-2)


@pytest.mark.slow
def test_smollm2_equals_hf_in_prefill_and_decode() -> None:
    loaded = load_model("smollm2")
    loaded.model.pack_for_decode()
    ids = loaded.tokenizer.encode_chat([{"role": "user", "content": "What is the capital of France?"}])
    reference = hf_model(*state_dict_for_reference("smollm2"))
    runner = PagedRunner(loaded.model, page_size=16, num_pages=16)
    (tokens,) = runner.generate([ids], 8)
    assert tokens == hf_greedy(reference, [ids], 8)[0]
    assert loaded.tokenizer.decode(tokens) == "The capital of France is Paris."
    theirs = hf_logits(reference, ids + tokens)[len(ids) - 1 : -1]
    ours = torch.stack(runner.history[0])
    assert torch.allclose(ours, theirs, atol=2e-3), float((ours - theirs).abs().max())


def test_bf16_is_as_close_to_fp32_as_hf_in_bf16() -> None:
    config, tensors = state_dict_for_reference("tiny")
    exact, rounded = hf_model(config, tensors), hf_model(config, tensors).to(torch.bfloat16)
    runner = PagedRunner(load_model("tiny", dtype=torch.bfloat16).model)
    prompts = random_prompts(8, longest=30, seed=2)
    rows = runner.generate(prompts, 8)
    errors: dict[str, list[float]] = {"ours": [], "theirs": []}
    for number, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        chosen = slice(len(prompt) - 1, -1)
        truth = hf_logits(exact, prompt + row)[chosen]
        theirs = hf_logits(rounded, prompt + row)[chosen]
        for who, logits in (("ours", torch.stack(runner.history[number])), ("theirs", theirs)):
            errors[who].append(float((logits - truth).norm() / truth.norm()))
    assert 0 < sum(errors["ours"]) < 1.25 * sum(errors["theirs"])
