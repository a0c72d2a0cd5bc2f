"""Folders of records on a Ray cluster of two nodes, which are processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports import Report, from_json
from tests.shadow.record.test_record_fleet import ROOT, fact, fleet, interruptible, planners, rows, until

ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'batchgen-migrate[fleet]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = (
    "if poisoned and {when}:\n"
    "        (here / f'try-{{os.getpid()}}').touch()\n"
    "        os.kill(os.getpid(), signal.SIGKILL)"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT), *filter(None, sys.path)))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    try:
        yield cluster
    finally:
        cluster.shutdown()
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def command(folder: Path, mine: Path, address: str) -> list[str]:
    options = [
        "--planners",
        str(mine),
        "--engine",
        "ray",
        "--ray-address",
        address,
        "--json",
        str(folder / "ray.json"),
    ]
    return [sys.executable, "-P", "-m", "shadow.cli", "replay", str(folder / "records"), *options]


def on_ray(folder: Path, mine: Path, address: str) -> Report:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command(folder, mine, address), env=environment, capture_output=True, text=True, timeout=500
    )
    report = from_json((folder / "ray.json").read_text())
    assert report.verdict.exit_code == done.returncode, done.stderr
    return report


def test_a_cluster_says_what_this_machine_says(tmp_path: Path, cluster: Any) -> None:
    records = fleet(tmp_path, poisoned=True)
    (records / "damaged.record").write_bytes((records / "a.record").read_bytes()[:-40] + bytes(40))
    (tmp_path / "once").touch()
    mine = planners(tmp_path, "if poisoned: return {'gone': (), 'page_count': 1}")
    report = on_ray(tmp_path, mine, cluster.address)
    local = subprocess.run(
        [*command(tmp_path, mine, "-")[:-6], "--json", str(tmp_path / "local.json")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    same = from_json((tmp_path / "local.json").read_text())
    assert local.returncode == report.verdict.exit_code == 2
    assert (report.verdict, report.findings, report.checks, report.tables) == (
        same.verdict,
        same.findings,
        same.checks,
        same.tables,
    )
    assert fact(report, "engine") == f"ray, at {cluster.address}"


def test_a_worker_of_a_cluster_that_is_killed_is_replaced_and_one_that_always_is_given_up(
    tmp_path: Path, cluster: Any
) -> None:
    for name, when, tries, code in (("once", "not any(here.glob('try-*'))", 1, 0), ("always", "True", 3, 2)):
        folder = tmp_path / name
        folder.mkdir()
        fleet(folder, poisoned=True)
        report = on_ray(folder, planners(folder, KILLS.format(when=when)), cluster.address)
        assert report.verdict.exit_code == code, report
        assert len(list(folder.glob("try-*"))) == tries
        assert fact(report, "workers lost").startswith(f"{tries}:")
        assert sum(row[0] == "equal" for row in rows(report, "Records").values()) == (4 if code == 0 else 3)


def test_ctrl_c_ends_what_a_cluster_is_doing(tmp_path: Path, cluster: Any) -> None:
    fleet(tmp_path, poisoned=True)
    mine = planners(tmp_path, "if poisoned: (here / f'pid-{os.getpid()}').touch(); time.sleep(600)")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command(tmp_path, mine, cluster.address),
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    ) as process:
        until(lambda: any(tmp_path.glob("pid-*")))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and "of 4 records replayed" in said
    (worker,) = (int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*"))
    until(lambda: not Path(f"/proc/{worker}").exists())


def test_records_of_a_node_that_is_lost_are_replayed_elsewhere(tmp_path: Path, cluster: Any) -> None:
    fleet(tmp_path, poisoned=True)
    node = cluster.add_node(num_cpus=4)
    body = "(here / f'on-{os.getppid()}').touch(); time.sleep(0 if (here / 'lost').exists() else 20)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command(tmp_path, planners(tmp_path, body), cluster.address), env=environment
    ) as process:
        raylet = node.all_processes["raylet"][0].process.pid
        until(lambda: (tmp_path / f"on-{raylet}").exists())
        (tmp_path / "lost").touch()
        cluster.remove_node(node, allow_graceful=False)
        assert process.wait(timeout=300) == 0
    report = from_json((tmp_path / "ray.json").read_text())
    assert int(fact(report, "workers lost").partition(":")[0]) >= 1


def test_an_address_at_which_nothing_answers_is_one_line(tmp_path: Path) -> None:
    fleet(tmp_path)
    report = on_ray(tmp_path, planners(tmp_path, "pass"), "127.0.0.1:9")
    assert (
        report.verdict.exit_code == 2
        and "nothing answers at --ray-address 127.0.0.1:9" in report.verdict.headline
    )
