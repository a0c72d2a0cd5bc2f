"""The shadow comparison of a gated worker: both L2 levels back to back, in compare mode and by the handler alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from migration.recipe import Recipe
from pipeline.config import Shadow
from pipeline.errors import SHORT, worst
from pipeline.running import Ran, module, shadow
from reports.json_report import from_json
from shadow.experiment import Summary
from shadow.gate_reports import GateReportError, of_called, read_reports

#: What must hold when decoding hands over to prefill (docs/invariants.md).
CLEANUP = ("decode-cleanup", "leftovers")


@dataclass(frozen=True)
class Compared:
    """`rans` have the codes of `shadow compare`; `gates` is what the gate itself found in all its comparing runs.

    `cleanup` counts how often each clean-up invariant was looked at in both runs.
    """

    rans: tuple[Ran, ...]
    gates: tuple[Summary, ...]
    cleanup: tuple[tuple[str, int], ...]
    scale: str
    device: str

    @property
    def calls(self) -> int:
        return sum(gate.compared for gate in self.gates)

    @property
    def code(self) -> int:
        """A comparison in which the gate compared nothing, or a clean-up was never looked at, is short (3)."""
        found = [ran.code for ran in self.rans]
        found += [int(gate.verdict) for gate in self.gates]
        if not self.calls or not all(count for _, count in self.cleanup):
            found.append(SHORT)
        return worst(found)


def device() -> str:
    """Where the comparison runs: on the GPU when there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def compare(
    recipe: Recipe, settings: Shadow, scale: str, before: str, tree: Path, folder: Path, where: str
) -> Compared:
    """`before` is the commit that the gated worker in `tree` is compared with; reports go to `folder`."""
    gates = folder / "gates.jsonl"
    gates.unlink(missing_ok=True)
    beside = os.path.relpath(folder, tree)
    modes = {
        "compare": (f"{recipe.prefix}_COMPARE=1", f"{recipe.prefix}_REPORT={beside}/gates.jsonl"),
        "native": (f"{recipe.prefix}_NATIVE=1",),
    }
    rans, looked = [], dict.fromkeys(CLEANUP, 0)
    for mode, variables in modes.items():
        report = folder / f"{mode}.json"
        report.unlink(missing_ok=True)
        options = [option for one in variables for option in ("--candidate-env", one)]
        options += _options(settings, scale, where)
        options += ["--json", f"{beside}/{mode}.json", "--html", f"{beside}/{mode}.html"]
        said = f"shadow {recipe.prefix}_{mode.upper()}"
        rans.append(shadow(said, tree, "compare", "--legacy", before, "--candidate", ".", *options))
        for name, count in _looked(report).items():
            looked[name] += count
    if settings.alone:
        comparing = {f"{recipe.prefix}_COMPARE": "1", f"{recipe.prefix}_REPORT": str(gates)}
        rans.append(module(f"alone {recipe.prefix}_COMPARE", tree, settings.alone.split(), comparing))
    return Compared(tuple(rans), summed(gates), tuple(looked.items()), scale, where)


def summed(report: Path) -> tuple[Summary, ...]:
    """What the gates found in all runs that wrote to a report; none where no run came to its end, whose own code says
    why."""
    try:
        return tuple(map(of_called, read_reports([report]).values()))
    except GateReportError:
        return ()


def _options(settings: Shadow, scale: str, where: str) -> list[str]:
    """Pools with room for three quarters of what all rows need at their longest: some go on hold."""
    from shadow.workloads import LADDER, Scale
    from shadow.workloads.ladder import PROMPT_PAGES

    asked, need = Scale.parse(scale), 0
    page_size = settings.page_size if scale == "1" else settings.scaled_page_size
    for name in settings.workload.split(","):
        pages = asked.cap(LADDER[name].cap) // page_size + (PROMPT_PAGES + 1) / 2
        need = max(need, int(asked.count(LADDER[name].prompts) * pages))
    return [
        *("--workload", settings.workload, "--model", settings.model, "--device", where),
        *("--page-size", str(page_size), "--content-every", str(settings.content_every)),
        *("--max-batch", "128", "--gpu-pages", str(need * 3 // 4), "--host-pages", str(need * 13 // 12)),
        *("--timeout", "900", *(("--scale", scale) if scale != "1" else ())),
    ]


def _looked(report: Path) -> dict[str, int]:
    """How often each clean-up invariant was looked at, from the report; none where there is none."""
    if not report.is_file():
        return {}
    tables = {table.title: table for table in from_json(report.read_bytes()).tables}
    rows = tables["Invariants of the candidate"].rows if "Invariants of the candidate" in tables else ()
    return {name: int(count.replace(",", "")) for name, count in rows if name in CLEANUP}
