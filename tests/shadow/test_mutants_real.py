"""The real model: nothing is found on the honest handler, each of three mutants where it was declared to be."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.copies import copy_before
from shadow.messages import Setup
from shadow.mutants import load
from shadow.mutants.trial import misplaced
from shadow.pair import compare_sides

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
MUTANTS = str(Path(__file__).parent / "real_mutants.py")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setup, Setup]:
    """The worker as it was before its slices, and with the KV section behind handles: 64 steps, pages of 16."""
    original = copy_before(ROOT, tmp_path_factory.mktemp("original"))
    ported = copy_before(ROOT, tmp_path_factory.mktemp("ported"))
    migrate = "import sys; from migration.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["port", "kv", "--cut", "--root", str(ported), "--allow-dirty"]
    done = subprocess.run(
        [sys.executable, "-c", migrate, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    requests = ported / "requests.jsonl"
    bodies = [
        {"prompt": prompt, "max_tokens": 70, "ignore_eos": True}
        for prompt in ("The capital of France is", "Once upon a time", "def add(a, b):")
    ]
    lines = [
        {"custom_id": f"r{at}", "method": "POST", "url": "/v1/completions", "body": body}
        for at, body in enumerate(bodies)
    ]
    requests.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    control = Setup(str(original), (str(requests),), 1, {"model": "smollm2", "page_size": 16}, max_steps=64)
    return control, replace(control, tree=str(ported))


def test_the_honest_handler_differs_in_nothing(sides: tuple[Setup, Setup]) -> None:
    tally, outcome = compare_sides(*sides, timeout=120)
    assert outcome.trouble is None and tally.total == 0, tally.first


@pytest.mark.parametrize("name", ["real-kv-len-one-short", "real-values-scaled", "real-tokens-swapped"])
def test_a_mutant_in_the_handler_is_found_where_it_was_declared(
    sides: tuple[Setup, Setup], name: str
) -> None:
    control, handler = sides
    tally, outcome = compare_sides(control, replace(handler, mutant=(MUTANTS, name)), timeout=120)
    assert outcome.trouble is None and tally.first is not None
    declared = load(MUTANTS)[name].where
    assert misplaced(declared, tally.first) is None, misplaced(declared, tally.first)
    assert tally.fired == tally.first.step == declared.step
