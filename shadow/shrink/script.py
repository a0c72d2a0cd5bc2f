"""The shrunk scenario as a pytest file, handed out only when it was seen to tell the two sides apart."""

from __future__ import annotations

import os
import pprint
import subprocess
import sys
import tempfile
from pathlib import Path

from shadow.messages import Setup
from shadow.shrink.reduce import Shrunk

TIMES = 3

_TEMPLATE = '''"""Shrunk by `shadow shrink`.

Events: {events_before} to {events}; requests: {requests_before} to {requests}.

Fails where the candidate differs from the legacy in {kind} ({where}).
Run it with the candidate replaced by the legacy to see it pass: SHADOW_CANDIDATE=legacy pytest THIS_FILE
"""

import os

from shadow.messages import Setup
from shadow.shrink import Replay, Scenario

BATCHES = {batches}
OPTIONS = {options}
LEGACY = Setup(
    tree=os.environ.get("SHADOW_LEGACY_TREE", {legacy!r}),
    batches=(),
    threads={threads},
    options={side_options},
    environment={legacy_environment!r},
    structural={structural},
)
CANDIDATE = Setup(
    tree=os.environ.get("SHADOW_CANDIDATE_TREE", {candidate!r}),
    batches=(),
    threads={threads},
    options={side_options},
    environment={candidate_environment!r},
    mutant={mutant!r},
    structural={structural},
)


def test_both_sides_are_equal() -> None:
    candidate = LEGACY if os.environ.get("SHADOW_CANDIDATE") == "legacy" else CANDIDATE
    found = Replay(LEGACY, candidate).run(Scenario(BATCHES, OPTIONS))
    assert found is None, f"{{found.signature.kind}} differs: {{found.where}}"
'''


class NotReproducedError(RuntimeError):
    """The script does not fail on the candidate and pass on the legacy every time: it is not handed out."""


def script(shrunk: Shrunk, requests_before: int, control: Setup, candidate: Setup) -> str:
    """The text of the pytest file."""
    return _TEMPLATE.format(
        events_before=shrunk.before.events,
        events=shrunk.found.events,
        requests_before=requests_before,
        requests=shrunk.scenario.size,
        kind=shrunk.found.signature.kind.value,
        where=shrunk.found.where,
        batches=_pretty(tuple(tuple(map(dict, batch)) for batch in shrunk.scenario.batches)),
        options=_pretty(dict(shrunk.scenario.options)),
        legacy=control.tree,
        candidate=candidate.tree,
        threads=control.threads,
        side_options=_pretty(dict(control.options)),
        legacy_environment=dict(control.environment),
        candidate_environment=dict(candidate.environment),
        mutant=candidate.mutant,
        structural=control.structural,
    )


def _pretty(value: object) -> str:
    return pprint.pformat(value, width=100, sort_dicts=False)


def verified_script(shrunk: Shrunk, requests_before: int, control: Setup, candidate: Setup) -> str:
    """The script, after it failed on the candidate with the same words and passed on the legacy three times.

    NotReproducedError: it did not.
    """
    text = script(shrunk, requests_before, control, candidate)
    kind = shrunk.found.signature.kind.value
    expected = f"{kind} differs: {shrunk.found.where}"
    with tempfile.TemporaryDirectory(prefix="shadow-shrunk-") as folder:
        path = Path(folder) / "test_shrunk.py"
        path.write_text(text, encoding="utf-8")
        failed = _run(path, {})
        if failed.returncode != 1 or failed.stdout.count(f"AssertionError: {expected}") < TIMES:
            raise NotReproducedError(f"not {TIMES} times the same failure on the candidate\n{failed.stdout}")
        passed = _run(path, {"SHADOW_CANDIDATE": "legacy"})
        if passed.returncode != 0 or f"{TIMES} passed" not in passed.stdout:
            raise NotReproducedError(f"it does not pass {TIMES} times on the legacy\n{passed.stdout}")
    return text


def _run(path: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The file `TIMES` times in one pytest, as copies of it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(path.parent)]
    copies = [path.with_name(f"test_shrunk_{number}.py") for number in range(TIMES)]
    for copy in copies:
        copy.write_bytes(path.read_bytes())
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [*command, *map(str, copies)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment, "PYTHONPATH": root, "COLUMNS": "400"},
        cwd=path.parent,
    )
