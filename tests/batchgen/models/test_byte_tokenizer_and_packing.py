"""The byte tokenizer of the tiny models, and what packing weights may and may not change."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from batchgen.models import ByteTokenizer, load_model
from batchgen.models.linear import PackableLinear
from tests.batchgen.models.paged import PagedRunner
from tests.batchgen.models.test_parity import random_prompts


@given(st.text(max_size=60))
def test_text_survives_the_byte_tokenizer(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special=False) == text
    assert all(0 <= i < tokenizer.vocab_size for i in ids)


def test_special_tokens_are_single_ids_and_can_be_left_out() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("a<think>b</think>```<tool_call></tool_call>") == [
        97,
        258,
        98,
        259,
        260,
        261,
        262,
    ]
    assert tokenizer.decode([256, 97, 258, 98, 257]) == "ab"
    assert tokenizer.decode([0xE2, 0x82]) == "\N{REPLACEMENT CHARACTER}"
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert tokenizer.apply_chat_template(chat) == "system: s\nuser: u\nassistant: "
    assert tokenizer.decode(tokenizer.encode_chat(chat)) == "system: s\nuser: u\nassistant: "


def linear_weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [module.weight for module in model.modules() if isinstance(module, PackableLinear)]


def test_unpack_gives_every_weight_back_and_repeating_either_changes_nothing() -> None:
    model = load_model("tiny").model
    before = [weight.clone() for weight in linear_weights(model)]
    model.pack_for_decode()
    model.pack_for_decode()
    assert all(weight.is_mkldnn for weight in linear_weights(model))
    model.unpack()
    model.unpack()
    after = linear_weights(model)
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert model.lm_head.weight is model.embedding


def test_packed_weights_serve_prefill_and_decode_alike() -> None:
    prompts = random_prompts(5, longest=30, seed=21)
    rows = []
    for packed in (False, True):
        model = load_model("tiny").model
        if packed:
            model.pack_for_decode()
        runner = PagedRunner(model)
        runner.generate(prompts, 6)
        rows.append(torch.stack([x for steps in runner.history.values() for x in steps]))
    assert torch.allclose(rows[0], rows[1], atol=2e-3)


def test_packing_is_for_fp32_batches_only() -> None:
    for model in (load_model("tiny", dtype=torch.bfloat16).model, load_model("tiny", row_exact=True).model):
        model.pack_for_decode()
        assert not any(weight.is_mkldnn for weight in linear_weights(model))


def test_pool_shapes_follow_the_config() -> None:
    assert load_model("tiny").model.kv_pool_shape() == (3, 2, 16)
    assert load_model("tiny").model.aux_pool_shape() is None
    assert load_model("tiny-dual").model.aux_pool_shape() == (3, 1, 16)


def test_the_seed_makes_the_weights() -> None:
    same = [load_model("tiny", seed=seed).model.embedding for seed in (4, 4, 5)]
    assert torch.equal(same[0], same[1]) and not torch.equal(same[0], same[2])
