from __future__ import annotations

import json

import pytest
import torch

from benchmarks import device_compare
from benchmarks.ratios import Ratio
from tests.shadow.device import scenarios
from tests.shadow.device.interpreted import Interpreter


def test_the_report_of_the_benchmark_has_each_tensor_with_its_ratio(interpreted: Interpreter) -> None:
    report = json.loads(interpreted.run(scenarios.bench_report))
    ratios = [Ratio(**told) for told in report["ratios"]]
    assert [ratio.name for ratio in ratios[:2]] == [
        "device compare, rows 3 x 40 float32",
        "device compare, rows 3 x 40 float16",
    ]
    assert len(ratios) == 6 and {ratio.bar for ratio in ratios} == {0.8}
    for ratio in ratios:
        copy, compare = (ratio.figures[f"{what} GB/s"] for what in ("copy", "compare"))
        assert isinstance(copy, float) and isinstance(compare, float)
        assert ratio.value == pytest.approx(compare / copy)


def test_without_a_device_the_benchmark_says_so_and_exits_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_compare.main([]) == 4
    assert capsys.readouterr().err == "device_compare: nothing was measured: no CUDA device is here\n"
