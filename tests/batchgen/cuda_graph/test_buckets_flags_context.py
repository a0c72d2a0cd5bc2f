from __future__ import annotations

import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchgen.attention import AttnWrapperBase
from batchgen.cuda_graph import (
    CaptureContext,
    DecodeGraphFlags,
    flags,
    generate_bucket_sizes,
    warn_on_removed,
)


@pytest.mark.parametrize(
    ("largest", "count", "sizes"),
    [
        (256, 9, (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        (16, 16, tuple(range(1, 17))),
        (16, 99, tuple(range(1, 17))),
        (40, 1, (40,)),
        (1, 5, (1,)),
        (40, 2, (1, 40)),
    ],
)
def test_known_bucket_sizes(largest: int, count: int, sizes: tuple[int, ...]) -> None:
    assert generate_bucket_sizes(largest, count) == sizes


@given(st.integers(1, 600), st.integers(1, 80))
def test_buckets_run_from_one_to_the_largest_without_repeats(largest: int, count: int) -> None:
    sizes = generate_bucket_sizes(largest, count)
    assert len(sizes) == min(largest, count) and sizes[-1] == largest
    assert len(sizes) == 1 or sizes[0] == 1
    assert all(a < b for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize(("largest", "count"), [(0, 3), (3, 0)])
def test_no_buckets_is_an_error(largest: int, count: int) -> None:
    with pytest.raises(ValueError, match="buckets need"):
        generate_bucket_sizes(largest, count)


def test_flags_default_to_off() -> None:
    assert DecodeGraphFlags.from_env({}) == DecodeGraphFlags(
        compare=False,
        compare_fail=False,
        compare_atol=1e-2,
        compare_rtol=1e-2,
        timing=False,
        probe_layers=(),
        path_log=False,
        max_seqlen=None,
    )


def test_every_flag_is_read_from_its_variable() -> None:
    env = {
        "COMPARE": "1",
        "COMPARE_FAIL": "true",
        "COMPARE_ATOL": "0.5",
        "COMPARE_RTOL": "0",
        "TIMING": "on",
        "PROBE_LAYERS": "3, 1,3",
        "PATH_LOG": "YES",
        "MAX_SEQLEN": "4096",
    }
    parsed = DecodeGraphFlags.from_env({"BATCHGEN_DECODE_GRAPH_" + name: text for name, text in env.items()})
    assert parsed == DecodeGraphFlags(True, True, 0.5, 0.0, True, (1, 3), True, 4096)
    off = {"BATCHGEN_DECODE_GRAPH_" + name: "0" for name in ("COMPARE", "COMPARE_FAIL", "TIMING", "PATH_LOG")}
    assert DecodeGraphFlags.from_env(off) == DecodeGraphFlags()


def test_all_probe_layers_are_one_marker() -> None:
    assert DecodeGraphFlags.from_env({"BATCHGEN_DECODE_GRAPH_PROBE_LAYERS": "all"}).probe_layers == (-1,)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("COMPARE", "maybe"),
        ("COMPARE_ATOL", "nan"),
        ("COMPARE_RTOL", "-1"),
        ("PROBE_LAYERS", "1,-1"),
        ("PROBE_LAYERS", "one"),
        ("MAX_SEQLEN", "0"),
        ("MAX_SEQLEN", "long"),
    ],
)
def test_a_variable_that_does_not_parse_is_named(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"BATCHGEN_DECODE_GRAPH_{name}='{text}'"):
        DecodeGraphFlags.from_env({f"BATCHGEN_DECODE_GRAPH_{name}": text})


def test_a_removed_variable_is_warned_about_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flags, "_warned", set())
    env = {"BATCHGEN_SEGMENTED_GRAPH": "1", "BATCHGEN_GLM5_WHOLE_MODEL_GRAPH_TIMING": "1", "OTHER": "1"}
    with caplog.at_level(logging.WARNING, "batchgen.cuda_graph"):
        for _ in range(2):
            DecodeGraphFlags.from_env(env)
            assert warn_on_removed(env) == tuple(list(env)[:2])
    assert [record.getMessage() for record in caplog.records] == [
        "environment variable BATCHGEN_SEGMENTED_GRAPH was removed: it has no effect any more",
        "environment variable BATCHGEN_GLM5_WHOLE_MODEL_GRAPH_TIMING was removed: "
        "set BATCHGEN_DECODE_GRAPH_TIMING instead",
    ]
    assert warn_on_removed({}) == ()


def test_a_context_binds_and_restores_what_it_bound_and_what_the_body_changed() -> None:
    AttnWrapperBase.max_seqlen = 5
    before = AttnWrapperBase.snapshot()
    with CaptureContext(max_seqlen=7, phase="decode"):
        assert (AttnWrapperBase.max_seqlen, AttnWrapperBase.phase) == (7, "decode")
        AttnWrapperBase.cur_batch = [1]
        with CaptureContext(max_seqlen=9):
            assert AttnWrapperBase.max_seqlen == 9
        assert AttnWrapperBase.max_seqlen == 7
    assert AttnWrapperBase.snapshot() == before


def test_a_context_restores_after_an_error_and_can_be_used_again() -> None:
    before = AttnWrapperBase.snapshot()
    context = CaptureContext(phase="decode")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), context:
            assert AttnWrapperBase.phase == "decode"
            raise ZeroDivisionError
        assert AttnWrapperBase.snapshot() == before


def test_a_context_refuses_unknown_names_before_binding_anything() -> None:
    before = AttnWrapperBase.snapshot()
    with pytest.raises(ValueError, match="no attribute cache_lens, typo to bind"):
        CaptureContext(phase="decode", typo=1, cache_lens=None)
    assert AttnWrapperBase.snapshot() == before
