"""One output of a bucket: live rows against live rows, whatever the padding holds."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shadow.diff import Mismatch
from shadow.graphs.outputs import Batch, Output
from shadow.numerics import score_row

LAYERS, HEADS, WIDTH = 3, 2, 4
NEGATED = 99.0  # of a zero that is a difference with a score of 0
SHAPES = {"logits": (0, (WIDTH,)), "kv_k": (1, (HEADS, WIDTH)), "kv_aux": (1, (WIDTH,))}


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, int, torch.Tensor, torch.Tensor]:
    """(name, live rows, replayed of a whole bucket, eager of the live rows), of few values so that many agree."""
    name = draw(st.sampled_from(sorted(SHAPES)))
    axis, tail = SHAPES[name]
    rows, padding = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    shape = ((LAYERS,) if axis else ()) + (rows + padding, *tail)
    size = int(np.prod(shape))
    replayed = draw(st.lists(st.sampled_from([0.0, 1.0, -3.0]), min_size=size, max_size=size))
    off = draw(st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.5, 8.0, NEGATED]), min_size=size, max_size=size))
    ours = torch.tensor(replayed).reshape(shape)
    change = torch.tensor(off).reshape(shape)
    eager = torch.where(change == NEGATED, -ours, ours + change).narrow(axis, 0, rows).contiguous()
    return name, rows, ours, eager


def of_layers(name: str, row: int, tensor: torch.Tensor) -> list[torch.Tensor]:
    """The vectors of one row, as [heads, width] of each layer."""
    axis, _ = SHAPES[name]
    layers = [tensor[layer, row] for layer in range(LAYERS)] if axis else [tensor[row]]
    return [layer.reshape(-1, WIDTH) for layer in layers]


def furthest(eager: torch.Tensor, replayed: torch.Tensor) -> float:
    """The largest score of a layer's heads; -1 where no bit differs."""
    scores = [score_row(ours.numpy(), theirs.numpy()) for ours, theirs in zip(eager, replayed, strict=True)]
    return max(-1.0 if score is None else score.relative_l2 for score in scores)


def a_sign_then_a_value() -> tuple[str, int, torch.Tensor, torch.Tensor]:
    """Layer 0 differs by the sign of a zero, layer 2 by 1."""
    replayed, eager = torch.zeros(LAYERS, 1, WIDTH), torch.zeros(LAYERS, 1, WIDTH)
    eager[0, 0, 1], eager[2, 0, 3] = -0.0, 1.0
    return "kv_aux", 1, replayed, eager


@settings(deadline=None, max_examples=200)
@given(given_step=steps())
@example(given_step=a_sign_then_a_value())
def test_each_row_that_differs_is_named_with_its_first_layer_and_its_furthest(
    given_step: tuple[str, int, torch.Tensor, torch.Tensor],
) -> None:
    name, rows, replayed, eager = given_step
    output = Output(name, replayed)
    batch = Batch(7, tuple(f"s{row}" for row in range(rows)))
    (found,) = [*output.compare(replayed, eager, batch), *output.drain()]
    assert output.compared(found[1], batch) == eager.numel()
    mismatches = list(output.mismatches(found[1], batch))
    expected: list[tuple[str, int | None, float]] = []
    for row in range(rows):
        scores = [
            furthest(ours, theirs)
            for ours, theirs in zip(of_layers(name, row, eager), of_layers(name, row, replayed), strict=True)
        ]
        if max(scores) < 0:
            continue
        first = next(layer for layer, score in enumerate(scores) if score >= 0)
        for layer in sorted({first, scores.index(max(scores))}):
            expected.append((f"s{row}", layer if SHAPES[name][0] else None, scores[layer]))
    assert [(one.sequence, one.layer) for one in mismatches] == [
        (label, layer) for label, layer, _ in expected
    ]
    np.testing.assert_allclose(
        [scored(one) for one in mismatches], [score for *_, score in expected], rtol=1e-5
    )


def scored(mismatch: Mismatch) -> float:
    assert mismatch.step == 7
    assert mismatch.score is not None
    return mismatch.score.relative_l2
