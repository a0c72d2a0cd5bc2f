"""What is printed is what was meant: nothing is folded, and brackets in it are no markup."""

from __future__ import annotations

import pytest

from migration import render


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


def test_a_line_keeps_its_brackets_and_its_length(capsys: pytest.CaptureFixture[str]):
    text = "self.pages[red] became rows[/] " + "x " * 60 + "end"
    render.line(("cache[bold]", "bold"), ": ", text)
    assert capsys.readouterr().out == f"cache[bold]: {text}\n"


@pytest.mark.parametrize(("holds", "state"), [(True, "holds"), (False, "broken")])
def test_a_verdict_keeps_what_the_files_are_called(
    holds: bool, state: str, capsys: pytest.CaptureFixture[str]
):
    row = {
        "slice": "cache",
        "holds": holds,
        "methods": 2,
        "file": "app/[old]/worker.py",
        "handler": "app/[new]/cache.py",
        "renames": [("pool", 2)],
        "declared": [("self.a[b]", "self._pool.a", 1)],
        "original": "it is app/[old]/worker.py at [HEAD]",
        "remarks": ["tests/[fakes].py was edited"],
        "share": None,
        "reasons": [] if holds else ["app/[old]/worker.py was edited after the proof"],
    }
    render.verdicts([row])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"cache: {state}: 2 methods, app/[old]/worker.py -> app/[new]/cache.py"
    assert lines[1:] == (
        [
            "  self became self._pool 2x",
            "  declared: self.a[b] became self._pool.a 1x",
            "  the original was restored: it is app/[old]/worker.py at [HEAD]",
            "  beside the proof: tests/[fakes].py was edited",
        ]
        if holds
        else ["  MG208 app/[old]/worker.py was edited after the proof"]
    )
