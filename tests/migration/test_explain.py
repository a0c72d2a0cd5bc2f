"""`migrate explain`: every code has its text, and the examples are true."""

from __future__ import annotations

import ast
import json
import re
import textwrap
import tomllib

import pytest

from migration.errors import CATALOGUE
from migration.explanations import explanations
from migration.move.cut import CutPlan, CutRefused, plan_cut

from .support import RECIPE, tree_of
from .test_cli import migrate

KNOWN = explanations()
METHODS = {code: entry for code, entry in KNOWN.items() if code < "MG100"}


def test_every_code_has_an_explanation_and_no_other_has():
    assert set(KNOWN) == set(CATALOGUE), (
        "add to migration/explanations what is missing, take out what is gone"
    )


@pytest.mark.parametrize("code", KNOWN)
def test_an_explanation_is_whole_sentences_and_its_example_has_two_sides(code: str):
    entry = KNOWN[code]
    for text in (entry.what, entry.why, entry.past):
        assert text[0].isupper() or text[0] in "-`_" or text.startswith(("pyflakes", "git"))
        assert text.endswith((".", "`.", '"')) and "  " not in text and text.count("`") % 2 == 0
    assert bool(entry.before) == bool(entry.after)
    named = re.findall(r"MG\d{3}", entry.what + entry.why + entry.past)
    assert set(named) <= set(CATALOGUE)


@pytest.mark.parametrize("code", [code for code, entry in METHODS.items() if entry.before])
def test_the_example_of_a_method_is_refused_with_the_code_and_moves_when_mended(code: str):
    refused = plan_cut(RECIPE, tree_of(METHODS[code].before.encode()))
    assert isinstance(refused, CutRefused)
    assert code in {refusal.code for refusal in refused.refusals}
    assert isinstance(plan_cut(RECIPE, tree_of(METHODS[code].after.encode())), CutPlan)


def test_most_methods_have_an_example():
    assert sum(bool(entry.before) for entry in METHODS.values()) > len(METHODS) * 3 // 4


@pytest.mark.parametrize("code", [code for code, entry in KNOWN.items() if entry.before and code > "MG1"])
def test_other_examples_are_toml_python_or_a_terminal(code: str):
    for text in (KNOWN[code].before, KNOWN[code].after):
        if text.startswith("["):
            tomllib.loads(text)
        elif not text.startswith(("$ ", "migrate: ")):
            loop = textwrap.indent(textwrap.dedent(text), "  ")
            ast.parse(f"for _ in __:\n{loop}")


def test_a_code_is_explained_in_any_case_with_its_example():
    run = migrate("explain", "mg002")
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout.startswith("MG002: the method uses a name that Python mangles\n")
    for heading in (
        "\nwhat ",
        "\nwhy ",
        "\nway out ",
        "\nbefore:\n    class Worker:",
        "\nafter:\n    class Worker:",
    ):
        assert heading in run.stdout
    assert "def read(self, page, /):" in run.stdout


def test_text_fits_the_terminal_and_commands_stay_whole(monkeypatch: pytest.MonkeyPatch, capsys):
    from migration import cli

    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit) as exit_:
        cli.main(["explain", "MG305"])
    lines = capsys.readouterr().out.splitlines()
    assert exit_.value.code == 0 and max(map(len, lines)) <= 60
    assert any("`migrate undo --list`" in line for line in lines)


def test_the_list_has_every_code_once_with_its_title():
    run = migrate("explain")
    assert run.returncode == 0
    listed = re.findall(r"^  (MG\d{3}) (.+)$", run.stdout, re.M)
    assert dict(listed) == {code: entry.title for code, entry in CATALOGUE.items()} and len(listed) == len(
        CATALOGUE
    )
    headings = re.findall(r"^MG\dxx .+$", run.stdout, re.M)
    assert len(headings) == len({code[:3] for code in CATALOGUE}), "a new hundred needs its heading"


def test_json_of_one_code_and_of_all():
    (one,) = json.loads(migrate("explain", "MG002", "--json").stdout)["codes"]
    assert one["code"] == "MG002" and one["title"] == CATALOGUE["MG002"].title and "/" in one["after"]
    every = json.loads(migrate("explain", "--json").stdout)["codes"]
    assert [entry["code"] for entry in every] == list(CATALOGUE)


@pytest.mark.parametrize(
    ("asked", "meant"), [("MG12", "MG012"), ("12", "MG012"), ("MG0012", "MG012"), ("GM012", "MG012")]
)
def test_an_unknown_code_is_a_usage_error_that_says_what_was_meant(asked: str, meant: str):
    run = migrate("explain", asked)
    assert run.returncode == 64 and run.stdout == ""
    assert f"there is no code {asked}" in run.stderr and f"did you mean {meant}" in run.stderr
    assert run.stderr.count("\n") == 1


def test_a_word_that_is_like_no_code_gets_no_guess():
    run = migrate("explain", "everything")
    assert run.returncode == 64 and "did you mean" not in run.stderr and "`migrate explain`" in run.stderr
