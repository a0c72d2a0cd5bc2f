"""Hugging Face directories: as transformers saves them, and as they go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from batchgen.config import RopeScaling
from batchgen.models import ModelLoadError, load_model, state_dict_for_reference
from tests.batchgen.models.paged import PagedRunner
from tests.batchgen.models.reference import hf_greedy, hf_model
from tests.batchgen.models.test_parity import random_prompts


def save_tokenizer(path: Path) -> None:
    import tokenizers
    from tokenizers import AddedToken, models, pre_tokenizers, processors

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    backend.save(str(path / "tokenizer.json"))
    settings = {
        "bos_token": {"content": "<s>"},
        "eos_token": "</s>",
        "chat_template": "{{ bos_token }}{{ messages[0]['content'] }}",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    config, tensors = state_dict_for_reference("tiny")
    model = hf_model(config, tensors)
    model.config.bos_token_id, model.config.eos_token_id = 256, [257]
    model.save_pretrained(tmp_path / "model")
    save_tokenizer(tmp_path / "model")
    return tmp_path / "model"


def test_a_directory_saved_by_transformers_generates_the_same_tokens(directory: Path) -> None:
    loaded = load_model(str(directory))
    config, tensors = state_dict_for_reference("tiny")
    prompts = random_prompts(6, longest=20)
    assert PagedRunner(loaded.model).generate(prompts, 8) == hf_greedy(hf_model(config, tensors), prompts, 8)
    assert loaded.config.tie_word_embeddings and loaded.config.name == "model"
    assert (loaded.config.bos_token_id, loaded.config.eos_token_ids) == (256, (257,))
    tokenizer = loaded.tokenizer
    assert tokenizer.encode("ab")[0] == tokenizer.special_tokens["<s>"] == 256
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"
    chat = [{"role": "user", "content": "ab"}]
    assert tokenizer.apply_chat_template(chat) == "<s>ab"
    assert tokenizer.encode_chat(chat) == tokenizer.encode("ab")


def test_weights_split_over_several_files_are_read(directory: Path) -> None:
    from safetensors.torch import load_file, save_file

    whole = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    for part in range(2):
        some = {name: t for i, (name, t) in enumerate(sorted(whole.items())) if i % 2 == part}
        save_file(some, directory / f"model-0000{part + 1}-of-00002.safetensors")
    _, tensors = state_dict_for_reference(str(directory))
    expected = state_dict_for_reference("tiny")[1]
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)


def edit_config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in raw.items() if value != "absent"}))


def test_llama3_scaling_is_read_in_both_spellings(directory: Path) -> None:
    block = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    expected = RopeScaling("llama3", 8.0, 1.0, 4.0, 64)
    edit_config(directory, rope_parameters=block | {"rope_theta": 5000.0})
    config = load_model(str(directory)).config
    assert config.rope_scaling == expected and config.rope_theta == 5000.0
    edit_config(directory, rope_parameters="absent", rope_scaling=block, rope_theta=7000.0)
    config = load_model(str(directory)).config
    assert config.rope_scaling == expected and config.rope_theta == 7000.0


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model_type": "gpt2"}, "architecture 'gpt2' is not a Llama-family model"),
        ({"sliding_window": 128}, r"sliding-window attention \(128\)"),
        ({"hidden_act": "gelu"}, "activation 'gelu' is not supported"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope scaling 'yarn' is not supported"),
        ({"hidden_size": "absent"}, "the field 'hidden_size' is missing"),
        ({"num_hidden_layers": 4}, "tensor model.layers.3.input_layernorm.weight is missing"),
        ({"intermediate_size": 64}, r"has shape \[128, 64\], the config implies \[64, 64\]"),
    ],
)
def test_configs_that_cannot_work_are_refused(directory: Path, changes: dict[str, Any], match: str) -> None:
    edit_config(directory, **changes)
    with pytest.raises(ModelLoadError, match=match):
        load_model(str(directory))


def test_missing_and_damaged_files_are_refused(directory: Path, tmp_path: Path) -> None:
    def refused(match: str) -> None:
        with pytest.raises(ModelLoadError, match=match) as caught:
            load_model(str(directory))
        assert "\n" not in str(caught.value)

    weights = directory / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    refused("truncated or not a safetensors file")
    weights.unlink()
    refused(r"no \*\.safetensors file")
    weights.write_bytes(data)
    (directory / "tokenizer.json").write_text("{}")
    refused("tokenizer.json: not a tokenizer")
    (directory / "tokenizer.json").unlink()
    refused(r"tokenizer\.json is missing")
    (directory / "config.json").write_text("{")
    refused("config.json: not readable as JSON")
    (directory / "config.json").unlink()
    refused("config.json is missing")
    (tmp_path / "bare").mkdir()
    with pytest.raises(ModelLoadError, match=r"a model directory needs config\.json"):
        load_model(str(tmp_path / "bare"))
