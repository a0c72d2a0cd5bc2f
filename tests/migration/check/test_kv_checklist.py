"""The checklist of slice 5 on the engine's own worker: clean in each phase, and each line sees its edit."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from migration.slices import load_recipe
from pipeline.copies import copy_before

from .test_command import ROOT, migrate

RECIPE = load_recipe("kv")
HANDLER = RECIPE.target_file


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A copy of the engine after each phase of the slice."""
    made: dict[str, Path] = {}
    tree = copy_before(ROOT, tmp_path_factory.mktemp("before"))
    for phase in ("port", "gate", "cleanup"):
        made[phase] = tmp_path_factory.mktemp(phase) / "tree"
        shutil.copytree(tree, made[phase], ignore=shutil.ignore_patterns("undo"))
        tree = made[phase]
        done = migrate(phase, "kv", "--repo", str(tree), cwd=tree)
        assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.mark.parametrize("phase", ["port", "gate", "cleanup"])
def test_every_line_holds_on_the_honest_tree(phase: str, phases: dict[str, Path]) -> None:
    done = migrate("check", "kv", "--repo", str(phases[phase]), "--json", cwd=phases[phase])
    body = json.loads(done.stdout)
    assert (done.returncode, body["phase"], body["findings"]) == (0, phase, [])
    recipe = tomllib.loads((ROOT / "migration/slices/kv.toml").read_text())
    titles = [item["title"] for item in recipe["checklist"]["items"]]
    ticked = [line["title"] for line in body["checks"]]
    assert len(titles) >= 5 and set(titles) <= set(ticked)


FREE = "        stats = self._req._read_host_kv_stats()\n"
KEPT = "        host_kv_eviction_watermark = self._req.args.host_kv_eviction_watermark\n"


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("MG610", FREE, "        stats = self._req.core_engine.host_paged_kv_worker_view.get_stats()\n"),
        ("MG610", FREE, "        stats = self._req.host_paged_kv_worker_view.get_stats()\n"),
        ("MG611", FREE, f"{FREE}        layers = self._req.model_config.num_layers\n"),
        ("MG612", KEPT, "        host_kv_eviction_watermark = 10\n"),
        ("MG613", FREE, f"{FREE}        self._req._pending_kv_append_tensors.clear()\n"),
        ("MG614", FREE, f"{FREE}        self._seen = stats\n"),
        ("MG621", "gpu_kv: GpuKvBackend, host_kv", "gpu_kv: GpuKvBackend, worker: Any, host_kv"),
    ],
)
def test_a_line_sees_the_edit_that_it_is_there_for(
    code: str, old: str, new: str, phases: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(phases["gate"], tmp_path / "tree")
    handler = tmp_path / "tree" / HANDLER
    text = handler.read_text()
    assert old in text
    handler.write_text(text.replace(old, new, 1))
    done = migrate("check", "kv", "--repo", str(tmp_path / "tree"), "--json", cwd=tmp_path)
    found = {finding["code"] for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1 and code in found


def test_what_a_request_brings_is_no_snapshot_in_a_method_that_runs_on_the_worker(
    phases: dict[str, Path], tmp_path: Path
) -> None:
    """The method is planned in the recipe as it is; served on the live worker it would read instance state."""
    text = (ROOT / "migration/slices/kv.toml").read_text()
    planned = '_host_pages_kept_back = "planned"\n'
    assert planned in text
    recipe = tmp_path / "kv.toml"
    recipe.write_text(text.replace(planned, ""))
    done = migrate("check", str(recipe), "--repo", str(phases["port"]), "--json", cwd=tmp_path)
    found = [f for f in json.loads(done.stdout)["findings"] if f["code"] == "MG612"]
    assert any("from instance state" in finding["message"] for finding in found)


def test_what_a_later_part_of_the_port_brings_is_missed_only_once_the_port_is_whole(tmp_path: Path) -> None:
    """The watermark is computed in one of the last methods."""
    tree = copy_before(ROOT, tmp_path / "tree")
    recipe = tmp_path / "kv.toml"
    text = (ROOT / "migration/slices/kv.toml").read_text()
    recipe.write_text(text.replace("budget = 500", "budget = 230"))

    def watermark() -> dict[str, str]:
        done = migrate("port", str(recipe), "--repo", str(tree), cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        done = migrate("check", str(recipe), "--repo", str(tree), "--json", cwd=tmp_path)
        (line,) = (line for line in json.loads(done.stdout)["checks"] if line["code"] == "MG612")
        return line

    first = watermark()
    assert first["status"] == "absent" and "to come with the next parts" in first["note"]
    for _ in range(8):
        last = watermark()
        if "to come" not in last["note"]:
            break
    assert last["status"] == "passed"
    handler = tree / HANDLER
    handler.write_text(handler.read_text().replace("host_kv_eviction_watermark", "renamed"))
    done = migrate("check", str(recipe), "--repo", str(tree), "--json", cwd=tmp_path)
    assert {"MG601"} <= {finding["code"] for finding in json.loads(done.stdout)["findings"]}
