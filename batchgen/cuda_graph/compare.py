"""Row by row comparison of a replay with an eager run on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ROW_DIM", "CompareFailure", "CompareReport", "RowDifference", "compare_outputs"]

# Dimension that counts batch rows; 0 for outputs not named here.
ROW_DIM: Mapping[str, int] = {"kv_k": 1, "kv_v": 1, "kv_aux": 1}
PROBE_PREFIX = "hidden_states_layer_"


class CompareFailure(RuntimeError):
    """Replay and eager run differ, and the caller asked for that to be an error. `report` says how."""

    def __init__(self, report: CompareReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True)
class RowDifference:
    """The worst element of one row of one output; `score` is |graph - eager| / (atol + rtol * |eager|)."""

    key: str
    row: int
    graph: float
    eager: float
    score: float


@dataclass(frozen=True)
class CompareReport:
    """`mismatched_keys` have a row over tolerance, a value that is not finite on one side, or another shape
    or dtype. `probe_results` maps each probed layer to its largest absolute difference. `values` counts
    elements compared."""

    compared_keys: tuple[str, ...]
    mismatched_keys: tuple[str, ...]
    missing_graph_keys: tuple[str, ...]
    missing_eager_keys: tuple[str, ...]
    rows: tuple[RowDifference, ...]
    shape_problems: tuple[str, ...]
    max_abs: float
    values: int
    probe_results: Mapping[int, float]

    @property
    def passed(self) -> bool:
        """False as well when nothing was compared."""
        return self.values > 0 and not (
            self.mismatched_keys or self.missing_graph_keys or self.missing_eager_keys
        )

    def __str__(self) -> str:
        if self.passed:
            return (
                f"equal within tolerance: {self.values} values of {', '.join(self.compared_keys)}, "
                f"largest difference {self.max_abs:.3g}"
            )
        parts = list(self.shape_problems)
        if self.missing_graph_keys:
            parts.append(f"the replay lacks {', '.join(self.missing_graph_keys)}")
        if self.missing_eager_keys:
            parts.append(f"the eager run lacks {', '.join(self.missing_eager_keys)}")
        if self.values == 0:
            parts.append("no value was compared")
        parts += [
            f"{r.key} row {r.row}: replay {r.graph:.6g}, eager {r.eager:.6g} ({r.score:.3g} x tolerance)"
            for r in self.rows[:4]
        ]
        more = f"; and {len(self.rows) - 4} more rows" if len(self.rows) > 4 else ""
        return "; ".join(parts) + more


def compare_outputs(
    graph: Mapping[str, Tensor],
    eager: Mapping[str, Tensor],
    *,
    atol: float,
    rtol: float,
    fail_on_mismatch: bool = False,
) -> CompareReport:
    """Compare outputs by name; every element must satisfy |graph - eager| <= atol + rtol * |eager|.

    Also a mismatch: NaN on either side, an infinity that the other side does not share, another shape or
    dtype, a key on one side only, no value at all. Raises CompareFailure instead of returning a failed report
    when `fail_on_mismatch`.
    """
    shared = [key for key in eager if key in graph]
    mismatched: list[str] = []
    problems: list[str] = []
    rows: list[RowDifference] = []
    probes: dict[int, float] = {}
    values, max_abs = 0, 0.0
    for key in shared:
        g, e = graph[key], eager[key]
        if g.shape != e.shape or g.dtype != e.dtype:
            mismatched.append(key)
            problems.append(
                f"{key} is {g.dtype} {tuple(g.shape)} in the replay, {e.dtype} {tuple(e.shape)} eager"
            )
            continue
        worst, bad = _compare_rows(key, g, e, atol, rtol)
        values += e.numel()
        max_abs = max(max_abs, worst)
        if bad:
            mismatched.append(key)
            rows += bad
        if key.startswith(PROBE_PREFIX):
            probes[int(key.removeprefix(PROBE_PREFIX))] = worst
    report = CompareReport(
        compared_keys=tuple(shared),
        mismatched_keys=tuple(mismatched),
        missing_graph_keys=tuple(key for key in eager if key not in graph),
        missing_eager_keys=tuple(key for key in graph if key not in eager),
        rows=tuple(sorted(rows, key=lambda row: -row.score)),
        shape_problems=tuple(problems),
        max_abs=max_abs,
        values=values,
        probe_results=probes,
    )
    if fail_on_mismatch and not report.passed:
        raise CompareFailure(report)
    return report


def _compare_rows(
    key: str, graph: Tensor, eager: Tensor, atol: float, rtol: float
) -> tuple[float, list[RowDifference]]:
    """(largest |graph - eager|, rows out of tolerance); a value that cannot be compared counts as
    infinite."""
    if eager.numel() == 0:
        return 0.0, []
    dim = ROW_DIM.get(key, 0)
    g, e = (_by_row(t, dim) for t in (graph, eager))
    difference = (g - e).abs()
    difference = torch.where(difference.isnan(), torch.inf, difference).masked_fill(g == e, 0.0)
    allowed = (atol + rtol * e.abs()).masked_fill(~e.isfinite(), 0.0)
    score = (difference / allowed).masked_fill(difference == 0, 0.0)
    worst, column = score.max(dim=1)
    bad = [
        RowDifference(key, row, float(g[row, column[row]]), float(e[row, column[row]]), float(worst[row]))
        for row in (worst > 1).nonzero()[:, 0].tolist()
    ]
    return float(difference.max()), bad


def _by_row(tensor: Tensor, dim: int) -> Tensor:
    rows = tensor.reshape(1) if tensor.dim() == 0 else tensor.movedim(dim, 0)
    return rows.reshape(rows.shape[0], -1).double()
