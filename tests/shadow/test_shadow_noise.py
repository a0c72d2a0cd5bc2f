"""Bounds from A/A scores, what they judge, where they are kept, and which token flips they explain."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow.noise import (
    Bound,
    Class,
    Conditions,
    FlipKind,
    Judgement,
    NoiseFileError,
    NoiseFloor,
    StepScore,
    calibrate,
    classify_flip,
    judge,
    load,
    save,
)
from shadow.noise.flip import gap_noise
from shadow.noise.power import FaultScores, Point, blindness, power_table
from shadow.noise.store import check_conditions

EQUAL = StepScore(False)
HERE = Conditions("tiny", "float32", "cpu", 1, 16, "2.13.0")


def bound(maximum: float | None = 1e-6, margin: float = 2.0, **changes: Any) -> Bound:
    return replace(Bound(Class.THREADS, "logits", 3, 60, maximum, margin, maximum == 0), **changes)


# calibration


step_scores = st.one_of(
    st.just(EQUAL), st.floats(0, 1).map(lambda score: StepScore(True, score)), st.just(StepScore(True, None))
)
many_runs = st.lists(st.lists(step_scores, min_size=1, max_size=6), min_size=1, max_size=5)


@given(many_runs, st.floats(1, 10))
def test_every_step_that_was_measured_passes_its_own_bound(
    runs: list[list[StepScore]], margin: float
) -> None:
    made = calibrate(Class.THREADS, "logits", runs, margin)
    assert (made.runs, made.steps) == (len(runs), sum(map(len, runs)))
    judged = {judge(step.differs, step.score, made) for run in runs for step in run}
    assert Judgement.DIVERGENCE not in judged
    unscored = any(step.score is None for run in runs for step in run)
    assert (made.limit is None) == unscored == (Judgement.UNJUDGED in judged)
    assert made.bit_equal == (judged == {Judgement.EQUAL})


def test_the_bound_is_the_largest_step_score_times_the_margin() -> None:
    runs = [[StepScore(True, 1e-6), EQUAL], [StepScore(True, 3e-6), StepScore(True, 2e-6)]]
    made = calibrate(Class.BUCKET, "logits", runs, 2.0)
    assert made.limit == pytest.approx(6e-6) and not made.bit_equal
    assert judge(True, 6e-6, made) is Judgement.WITHIN_NOISE
    assert judge(True, 6.1e-6, made) is Judgement.DIVERGENCE


def test_the_false_alarm_rate_is_one_in_n_plus_one_by_step_and_by_run() -> None:
    made = bound(runs=9, steps=99)
    assert (made.false_alarms_per_step, made.false_alarms_per_run) == (0.01, 0.1)
    rng = np.random.default_rng(0)
    # Distribution-free: the largest of 9 scores is exceeded by a tenth one in a tenth of all cases at most.
    samples = rng.pareto(1.0, size=(20000, 10))
    assert (samples[:, 9] > samples[:, :9].max(axis=1)).mean() == pytest.approx(0.1, abs=0.01)


def test_where_every_run_was_bit_equal_nothing_that_differs_passes() -> None:
    made = calibrate(Class.SAME, "logits", [[EQUAL], [EQUAL]], 4.0)
    assert made.limit == 0.0 and made.bit_equal
    assert judge(False, 0.0, made) is Judgement.EQUAL
    assert judge(True, 0.0, made) is Judgement.DIVERGENCE  # a signed zero
    assert judge(True, None, made) is Judgement.DIVERGENCE  # a digest
    signed = calibrate(Class.SAME, "logits", [[StepScore(True, 0.0)]], 4.0)
    assert judge(True, 0.0, signed) is Judgement.WITHIN_NOISE


def test_what_is_no_number_passes_no_bound_and_a_digest_none_that_has_a_limit() -> None:
    assert judge(True, math.inf, bound()) is Judgement.DIVERGENCE
    assert judge(True, math.inf, bound(None)) is Judgement.DIVERGENCE
    assert judge(True, None, bound()) is Judgement.DIVERGENCE
    assert judge(True, None, bound(None)) is Judgement.UNJUDGED


def test_an_a_a_run_with_nan_gives_no_limit() -> None:
    assert calibrate(Class.SAME, "logits", [[StepScore(True, math.inf)]], 2.0).limit is None


@pytest.mark.parametrize("runs", [[], [[EQUAL], []]])
def test_no_bound_without_a_measurement(runs: list[list[StepScore]]) -> None:
    with pytest.raises(ValueError, match="each must show it at least once"):
        calibrate(Class.SAME, "logits", runs, 2.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"runs": 0}, "at least one run"),
        ({"steps": 2}, "at least one run"),
        ({"margin": 0.9}, "a margin is 1 or more"),
        ({"margin": math.inf}, "a margin is 1 or more"),
        ({"maximum": -1.0}, "0 or more and finite"),
        ({"maximum": math.nan}, "0 or more and finite"),
        ({"bit_equal": True}, "bit-equal runs"),
    ],
)
def test_numbers_that_no_measurement_gives_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bound(**changes)


def test_step_scores_that_contradict_themselves_are_refused() -> None:
    for differs, score in ((False, 1.0), (False, None), (True, -1.0), (True, math.nan)):
        with pytest.raises(ValueError, match="score"):
            StepScore(differs, score)


# token flips


def row(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_a_flip_between_two_logits_that_noise_could_swap_is_a_near_tie() -> None:
    flip = classify_flip(row(5.0, 5.00001, -3.0), row(5.00001, 5.0, -3.0), bound(2e-6))
    assert (flip.kind, flip.tokens) == (FlipKind.NEAR_TIE, (1, 0))
    assert flip.margins == pytest.approx((1e-5, 1e-5), rel=0.1) and max(flip.margins) < flip.noise


def test_a_flip_over_more_than_the_noise_is_a_divergence_on_either_side() -> None:
    near, far = row(5.0, 5.00001, -3.0), row(5.001, 5.0, -3.0)
    for legacy, candidate in ((near, far), (far, near)):
        # the row itself passes the bound given, so the margin decides
        wide = bound(2e-6, margin=1.0)
        assert classify_flip(legacy, candidate, wide).kind is FlipKind.DIVERGENCE
    assert classify_flip(near, far, bound(1e-2)).kind is FlipKind.NEAR_TIE


def test_margins_are_taken_to_the_other_side_s_token_not_to_the_runner_up() -> None:
    legacy, candidate = row(9.0, 8.999999, 1.0), row(0.9, 0.9, 1.0)
    flip = classify_flip(legacy, candidate, bound(1e-3))
    assert flip.tokens == (0, 2) and flip.margins[0] == pytest.approx(8.0)
    assert flip.kind is FlipKind.DIVERGENCE


def test_one_logit_that_jumps_is_no_near_tie_though_its_row_is_within_the_bound() -> None:
    legacy = np.linspace(-5, 5, 50000).astype(np.float32)
    candidate = legacy.copy()
    candidate[7] = 5.5
    within = bound(2e-2, margin=1.0)
    flip = classify_flip(legacy, candidate, within)
    assert judge(True, flip.score, within) is Judgement.WITHIN_NOISE
    assert flip.kind is FlipKind.DIVERGENCE and flip.margins[0] > flip.noise


def test_a_row_beyond_its_bound_is_a_divergence_however_near_the_tie() -> None:
    legacy, candidate = row(5.0, 5.00001, -3.0), row(5.00001, 5.0, -4.0)
    assert classify_flip(legacy, candidate, bound(1e-3)).kind is FlipKind.DIVERGENCE


def test_under_a_bound_of_zero_only_an_exact_tie_of_equal_rows_is_near() -> None:
    tie = row(5.0, 5.0, 1.0)
    zero = bound(0.0)
    assert classify_flip(tie, tie.copy(), zero, (0, 1)).kind is FlipKind.NEAR_TIE
    assert classify_flip(tie, row(4.0, 5.0, 1.0), zero).kind is FlipKind.DIVERGENCE


def test_a_token_that_its_own_logits_do_not_favour_is_never_a_near_tie() -> None:
    legacy = row(5.0, 5.0, 4.99999)
    flip = classify_flip(legacy, legacy.copy(), bound(1e-3), (0, 2))
    assert flip.kind is FlipKind.DIVERGENCE and flip.margins[1] < 0
    between = classify_flip(row(5.0, 5.0, 9.0), row(5.0, 5.0, 9.0), bound(1e-3), (0, 1))
    assert between.kind is FlipKind.DIVERGENCE, "neither of the two is what the logits favour"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_are_no_numbers_are_no_near_tie(bad: float) -> None:
    flip = classify_flip(row(1.0, 2.0), row(bad, 2.0), bound(1.0))
    assert flip.kind is FlipKind.DIVERGENCE


def test_what_is_no_row_is_refused() -> None:
    for values in (np.zeros((1, 2), np.float32), np.zeros(0, np.float32)):
        with pytest.raises(ValueError, match="a row of logits has one axis"):
            classify_flip(values, values, bound())


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3000), st.sampled_from([1e-6, 1e-4, 1e-2]))
def test_gaussian_noise_of_the_bound_flips_tokens_only_in_near_ties(
    seed: int, size: int, limit: float
) -> None:
    rng = np.random.default_rng(seed)
    legacy = rng.normal(size=size)
    legacy[0] = legacy[1] = legacy.max() + 0.1
    error = rng.normal(size=size)
    error *= 0.9 * limit * np.linalg.norm(legacy) / np.linalg.norm(error)
    flip = classify_flip(legacy, legacy + error, bound(limit, margin=1.0))
    largest_move = float(np.ptp(error))
    assert flip.noise <= math.sqrt(2) * limit * np.linalg.norm(legacy) * (1 + 1e-9)
    if flip.kind is FlipKind.DIVERGENCE:  # possible only where the error is larger than such errors are
        assert largest_move > flip.noise


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=50), st.floats(1, 100))
def test_noise_grows_with_the_bound_and_with_the_row(values: list[float], factor: float) -> None:
    legacy = np.array(values)
    small, large = gap_noise(legacy, bound(1e-6)), gap_noise(legacy, bound(1e-6 * factor))
    assert large == pytest.approx(small * factor) and gap_noise(legacy, bound(0.0)) == 0.0
    assert gap_noise(legacy * factor, bound(1e-6)) == pytest.approx(small * factor)
    assert gap_noise(np.append(legacy, -math.inf), bound(1e-6)) < math.inf


# the power statement


def test_a_fault_is_missed_from_the_length_after_which_it_is_never_seen_again() -> None:
    scores = FaultScores(
        "surplus zero page", "kv_len", tuple(map(Point, (64, 512, 2048), (1e-1, 1e-3, 1e-5)))
    )
    assert blindness(scores, 1e-6).missed_from is None
    assert str(blindness(scores, 1e-6)) == "surplus zero page: seen up to 2048 tokens"
    half = blindness(scores, 1e-4)
    assert (half.last_seen, half.missed_from) == (512, 2048)
    assert "somewhere between 512 and 2048 tokens upward; seen by kv_len" in str(half)
    assert str(blindness(scores, 1.0)) == "surplus zero page: missed at every length; seen by kv_len"
    assert blindness(scores, 1e-5).missed_from == 2048, "a score equal to the bound passes it"
    again = replace(scores, points=tuple(map(Point, (1, 2, 3), (0.0, 1.0, 0.0))))
    assert (blindness(again, 0.5).missed_from, blindness(again, 0.5).last_seen) == (3, 2)


def test_the_power_table_has_a_row_for_each_fault() -> None:
    scores = FaultScores("wrong page", "page_table", (Point(64, 0.5), Point(128, 0.25)))
    table = power_table([scores], 0.3, "What it could not have seen")
    assert table.rows == (
        (
            "wrong page",
            "5.0e-01 at 64, 2.5e-01 at 128",
            "missed from somewhere between 64 and 128 tokens upward",
            "page_table",
        ),
    )


@pytest.mark.parametrize("lengths", [(), (2, 1), (1, 1), (0,)])
def test_a_ladder_ascends(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"ladder|cannot have score"):
        FaultScores("f", "c", tuple(Point(length, 0.0) for length in lengths))


# the store


def floor() -> NoiseFloor:
    power = (FaultScores("wrong page", "page_table", (Point(64, 0.1), Point(128, 0.2))),)
    return NoiseFloor(HERE, (bound(), bound(None, kind="kv"), bound(0.0, pairing=Class.SAME)), power)


def test_what_is_saved_is_loaded_to_the_bit(tmp_path: Path) -> None:
    made = replace(floor(), bounds=(bound(0.1 + 0.2),))
    save(tmp_path / "noise.json", made)
    assert load(tmp_path / "noise.json") == made
    assert [path.name for path in tmp_path.iterdir()] == ["noise.json"]


def test_bounds_are_looked_up_by_class_and_kind() -> None:
    made = floor()
    found = made.bound(Class.THREADS, "kv")
    assert found is not None and found.limit is None
    assert made.bound(Class.SAME, "kv") is None
    assert made.classes == (Class.SAME, Class.THREADS)
    with pytest.raises(ValueError, match="two bounds for threads logits"):
        replace(made, bounds=(bound(), bound()))


def refused(path: Path) -> str:
    with pytest.raises(NoiseFileError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def test_a_file_that_is_cut_off_anywhere_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "noise.json"
    save(path, floor())
    whole = path.read_bytes()
    for length in range(len(whole) - 2):
        path.write_bytes(whole[:length])
        refused(path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"shadow noise"', '"shadow record"', "is no file of `shadow noise`"),
        ('"schema": 1', '"schema": 2', "another schema than 1"),
        ('"runs": 3', '"runs": 0', "at least one run"),
        ('"margin": 2.0', '"margin": "2.0"', "is damaged"),
        ('"pairing": "threads"', '"pairing": "moon"', "is damaged"),
        ('"kind": "kv"', '"kind": "logits"', "two bounds for threads logits"),
        ('"length": 128', '"length": 64', "not an ascending ladder"),
    ],
)
def test_a_foreign_or_damaged_file_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "noise.json"
    save(path, floor())
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert said in refused(path)


def test_files_that_are_not_there_not_text_or_not_json_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise.json"
    assert "cannot be read: No such file" in refused(path)
    for content in (b"\xff\xfe", b"[]", b'"x"', b"{}", b'{"tool": 1}'):
        path.write_bytes(content)
        assert "no file of" in refused(path)


def test_a_file_of_other_conditions_is_refused_with_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "noise.json"
    check_conditions(path, floor(), HERE)
    with pytest.raises(NoiseFileError) as caught:
        check_conditions(path, floor(), replace(HERE, threads=2, dtype="bfloat16"))
    assert "measured with dtype float32 (here bfloat16), threads 1 (here 2)" in str(caught.value)


def test_a_folder_that_takes_no_file_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoiseFileError, match="cannot be written: No such file"):
        save(tmp_path / "missing" / "noise.json", floor())


def test_judging_needs_neither_torch_nor_batchgen() -> None:
    code = "import sys, shadow.noise\nprint({'torch', 'batchgen'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
