"""`port --cut --interactive`: what is accepted moves, with the proof of exactly that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from migration.commands.interactive import choose
from migration.errors import MigrationError

from .support import planned, tree_of, worker_source

WORKER = worker_source(
    "def first(self):\n    return self.name\n\ndef second(self):\n    return 2\n\ndef third(self):\n    return 3\n"
)
RECIPE = """\
schema = 1
name = "three"
[source]
file = "app/worker.py"
class = "Worker"
section = "Cache"
[target]
file = "app/parts.py"
class = "Parts"
"""


@pytest.mark.parametrize(
    ("answers", "accepted"),
    [
        ("yny", ("first", "third")),
        ("na", ("second", "third")),
        ("yq", ("first",)),
        ("q", ()),
        ("?xyyy", ("first", "second", "third")),
    ],
)
def test_answers_choose_methods(answers: str, accepted: tuple[str, ...]):
    left = iter(answers)
    assert choose(planned(WORKER), lambda _: next(left)) == accepted


def test_end_of_input_is_an_error_not_an_answer():
    def closed(_: str) -> str:
        raise EOFError

    with pytest.raises(MigrationError) as error:
        choose(planned(WORKER), closed)
    assert error.value.code == "MG131"


def test_the_accepted_methods_are_cut_and_the_others_keep_their_bytes(tmp_path: Path):
    for path, data in tree_of(WORKER).files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "three.toml").write_text(RECIPE)
    command = [sys.executable, "-c", "from migration.cli import main; main()", "port", "three.toml"]
    root = str(Path(__file__).resolve().parents[2])
    run = subprocess.run(
        [*command, "--cut", "--interactive"],
        cwd=tmp_path,
        input="n\ny\nn\n",
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root, "PATH": ""},
    )
    assert run.returncode == 0, run.stderr
    worker = (tmp_path / "app/worker.py").read_text()
    assert (
        "return self.name" in worker
        and "return 3" in worker
        and "return Parts.for_worker(self).second()" in worker
    )
    assert "+        return self._host.name" in run.stdout
    verify = subprocess.run(
        [*command[:3], "verify"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root, "PATH": ""},
    )
    assert verify.returncode == 0, verify.stdout + verify.stderr
    usage = subprocess.run(
        [*command, "--interactive"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root, "PATH": ""},
    )
    assert usage.returncode == 64
