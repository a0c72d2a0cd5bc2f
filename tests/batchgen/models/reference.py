"""Hugging Face's own Llama on the same weights: the truth that the paged model is compared with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from batchgen.config import ModelConfig

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def hf_model(config: ModelConfig, tensors: Mapping[str, Tensor], **extra: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    hf_config = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_theta,
        max_position_embeddings=config.max_position_embeddings,
        tie_word_embeddings=config.tie_word_embeddings,
        attention_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
        pad_token_id=0,
        **extra,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(hf_config)
    model.to_empty(device="cpu")
    model.load_state_dict(dict(tensors), strict=True)
    model.tie_weights()
    rotary = model.model.rotary_emb
    fresh = type(rotary)(hf_config)
    rotary.load_state_dict(fresh.state_dict())
    for name, buffer in fresh.named_buffers():
        setattr(rotary, name, buffer)
    return model.eval()


def hf_greedy(model: Any, prompts: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
    """``new_tokens`` greedy tokens after each prompt (EOS does not stop), left-padded in one batch."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    model.generation_config.eos_token_id = None
    out = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False, pad_token_id=0
    )
    return [row[width:] for row in out.tolist()]


def hf_logits(model: Any, ids: Sequence[int]) -> Tensor:
    """[len(ids), vocab]."""
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0].float()
