"""`batchgen bench`: its figures fit together, and what it cannot do it says."""

from __future__ import annotations

import json
import sys

import pytest

from batchgen.bench import main

SIZES = ["--model", "tiny", "--batch", "3", "--prompt-tokens", "5", "--new-tokens", "4", "--repeat", "1"]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHGEN_REP_DETECTION", "1")


def test_one_run_measures_both_sides_the_floor_and_the_share_of_attention(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*SIZES, "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert (out["model"], out["batch"], out["prompt_tokens"], out["new_tokens"]) == ("tiny", 3, 5, 4)
    assert out["step_ms"] > 0 and out["hf_step_ms"] > 0
    assert out["tokens_per_second"] == pytest.approx(3 / out["step_ms"] * 1e3)
    assert out["speedup"] == pytest.approx(out["hf_step_ms"] / out["step_ms"])
    # 3 layers of qkv 64x128, o 64x64, gate and up 64x256, down 128x64, and the head 64x264, in fp32.
    weights = 3 * (64 * 128 + 64 * 64 + 64 * 256 + 128 * 64) + 64 * 264
    assert out["weight_mbytes"] == pytest.approx(weights * 4 / 1e6)
    assert out["floor_step_ms"] == pytest.approx(out["weight_mbytes"] / out["stream_gbytes_per_second"])
    assert out["step_over_floor"] == pytest.approx(out["step_ms"] / out["floor_step_ms"])
    assert 0 < out["attention_share"] < 1


def test_without_the_comparison_the_report_leaves_it_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SIZES, "--no-hf"]) == 0
    text = capsys.readouterr().out
    assert "HF generate" not in text
    assert "tiny, batch 3, 5 prompt + 4 new tokens" in text
    assert "ms/step" in text and "floor" in text and "paged attention" in text


def test_a_missing_transformers_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(SIZES) == 2
    assert "pip install transformers, or use --no-hf" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["tiny-dual", "tiny-hybrid"])
def test_a_model_that_is_no_llama_is_not_compared_with_one(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SIZES, "--model", model]) == 2
    assert f"{model!r} is no Llama" in capsys.readouterr().err


def test_bad_models_and_options_have_their_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "no-such-model"]) == 2
    assert "'no-such-model' not found" in capsys.readouterr().err
    assert main(["--batch", "0"]) == 64
    assert "sizes must be at least 1" in capsys.readouterr().err
    assert main(["--batch", "many"]) == 64
