from __future__ import annotations

import json

import pytest
import torch

from benchmarks import device_compare
from tests.shadow.device import scenarios
from tests.shadow.device.interpreted import Interpreter


def test_the_report_of_the_benchmark_has_each_tensor_with_its_ratio(interpreted: Interpreter) -> None:
    report = json.loads(interpreted.run(scenarios.bench_report))
    rows = report["measured"]
    assert [(row["name"], row["dtype"]) for row in rows[:2]] == [("rows", "float32"), ("rows", "float16")]
    assert len(rows) == 6 and report["bar"] == 0.8
    assert all(row["ratio"] == pytest.approx(row["compare"] / row["copy"]) for row in rows)


def test_without_a_device_the_benchmark_says_so_and_exits_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_compare.main([]) == 4
    assert capsys.readouterr().err == "device_compare: nothing was measured: no CUDA device is here\n"
