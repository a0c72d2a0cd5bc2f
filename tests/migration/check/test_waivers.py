"""What is let pass, until when, and what is wrong with a checklist itself."""

from __future__ import annotations

import datetime

import pytest

from migration.check.reading import NothingThere, read_subject
from migration.errors import MigrationError
from migration.recipe import parse_recipe
from migration.recipe_checklist import parse_checklist

from ..support import DictTree
from .support import HANDLER, RECIPE, TEXT, TODAY, WORKER, edited, report, tree

WAIVER = """
[[checklist.waivers]]
rule = "stateless"
place = "KVCacheManager._evict"
reason = "goes with slice 7"
expires = 2026-06-30
"""
TESTS = "[checklist.tests]\n"
EVICT = "        self._state.held.update(uuids)\n"


def broken() -> dict[str, bytes]:
    files = edited(tree("port"), HANDLER, EVICT, EVICT + "        self._last = uuids\n")
    return edited(
        files,
        WORKER,
        "\t\tself.held.update(uuids)\n",
        "\t\tself.held.update(uuids)\n\t\tself._last = uuids\n",
    )


def codes(text: str, **options: object) -> list[str]:
    return [finding.code for finding in report(broken(), "port", text=text, **options).findings]  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", ["stateless", "MG614"])
@pytest.mark.parametrize("place", ["KVCacheManager._evict", "_evict", HANDLER])
def test_a_waiver_lets_a_finding_pass_and_is_said(rule: str, place: str):
    assert "MG614" in codes(TEXT)
    text = TEXT + WAIVER.replace('"stateless"', f'"{rule}"').replace("KVCacheManager._evict", place)
    found = report(broken(), "port", text=text)
    assert "MG614" not in {finding.code for finding in found.findings} and not found.errors
    (one,) = found.waived
    assert one.finding.code == "MG614" and one.waiver.reason == "goes with slice 7"
    assert [check.status for check in found.checks if check.rule == "stateless"] == ["waived"]


def test_an_expired_waiver_is_a_finding_and_lets_nothing_pass():
    found = codes(TEXT + WAIVER, today=datetime.date(2026, 7, 1))
    assert {"MG602", "MG614"} <= set(found)


def test_a_waiver_that_matches_nothing_is_an_error():
    clean = report(tree("port"), "port", text=TEXT + WAIVER)
    (error,) = clean.errors
    assert error.code == "MG603" and error.place.line == (TEXT + WAIVER).count("\n") - 4
    elsewhere = report(broken(), "port", text=TEXT + WAIVER.replace("_evict", "_load"))
    assert [one.code for one in elsewhere.errors] == ["MG603"]
    unknown = report(tree("port"), "port", text=TEXT + WAIVER.replace("stateless", "statless"))
    assert [one.code for one in unknown.errors] == ["MG603"]


@pytest.mark.parametrize("change", ['phases = ["gate"]\n', ""])
def test_a_waiver_for_another_phase_is_left_alone(change: str):
    rule = "stateless" if change else "signature"  # no rule `signature` runs in the phase port
    found = report(tree("port"), "port", text=TEXT + WAIVER.replace("stateless", rule) + change)
    assert not found.errors and not found.findings


def test_an_item_that_looks_at_nothing_is_a_finding():
    text = TEXT.replace('names = ["DualKVCacheCoordinator"]', 'names = ["DualKvCacheCoordinator"]')
    (finding,) = report(tree("port"), "port", text=text).findings
    assert finding.code == "MG601" and "looked at nothing" in finding.message
    text = TEXT.replace('call = "configure_decoding"', 'call = "configure_decode"')
    assert [one.code for one in report(tree("port"), "port", text=text).findings] == ["MG601"]
    text = TEXT.replace('names = ["_pending_kv_append_tensors"]', 'names = ["_pending_kv_append_tensor"]')
    assert report(tree("port"), "port", text=text).findings == ()  # the name is a part of the class's text
    text = TEXT.replace('names = ["_pending_kv_append_tensors"]', 'names = ["_pending_appends"]')
    assert [one.code for one in report(tree("port"), "port", text=text).findings] == ["MG601"]


def test_an_item_for_another_phase_is_not_judged():
    text = TEXT.replace('first = "wait"\n', 'first = "never"\nphases = ["cleanup"]\n')
    assert not report(tree("port"), "port", text=text).findings
    assert "MG623" in {one.code for one in report(tree("cleanup"), "cleanup", text=text).findings}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('rule = "computed"', 'rule = "compute"', "no rule is called compute, did you mean computed?"),
        ('call = "configure_decoding"\n', "", "checklist.items[7].call: missing"),
        ('first = "wait"', "first = 1", "checklist.items[12].first: must be str, is 1"),
        ('first = "wait"', 'fisrt = "wait"', "unknown entry, did you mean first?"),
        ('attribute = "self.model"', 'attribute = "model"', "must be a chain of attributes"),
        ('expressions = ["self.model"]', "expressions = []", "either `expressions` or `names`"),
        ('expressions = ["self.model"]', "expressions = [1]", "must be a list of strings"),
        ('signature = "(self, *,', 'signature = "(self, *,,', "must be parameters as `def` has them"),
        (
            '{ assigned_rank = "assign_rank" }',
            "{ assigned_rank = 1 }",
            "must be a table of attribute = method",
        ),
        ('owner = "KV team"', 'owner = " "', "must name somebody"),
        ("introduced = 2026-05-27", 'introduced = "2026-05-27"', "must be date, is '2026-05-27'"),
        ("gate = 120", "gates = 120", "unknown entry, did you mean gate?"),
        ("[checklist.budget]", "[checklist.budgets]", "unknown entry, did you mean budget?"),
        ("[checklist.budget]", f"{TESTS}ports = ['tests']\n[checklist.budget]", "did you mean port?"),
        (
            "[checklist.budget]",
            f"{TESTS}port = 'tests'\n[checklist.budget]",
            "port: must be list, is 'tests'",
        ),
        ("[checklist.budget]", f"{TESTS}port = []\n[checklist.budget]", "tests.port: must not be empty"),
        (
            "[checklist.budget]",
            f"{TESTS}port = ['../t.py']\n[checklist.budget]",
            "'../t.py' must be a plain path",
        ),
        ('reason = "goes with slice 7"\n', "", "checklist.waivers[0].reason: missing"),
        ('reason = "goes with slice 7"', 'reason = ""', "checklist.waivers[0].reason: must say something"),
        ("expires = 2026-06-30\n", "", "checklist.waivers[0].expires: missing"),
        ("expires = 2026-06-30", 'expires = 2026-06-30\nphases = ["ports"]', "did you mean port?"),
        (
            'rule = "stateless"\n\n',
            'rule = "stateless"\nnames = ["x"]\n\n',
            "checklist.items[4].names: unknown entry",
        ),
        *(
            (
                'rule = "stateless"\n\n',
                f'rule = "optional-handle"\noptional = ["{name}"]\n\n',
                f"checklist.items[4].optional: {said}",
            )
            for name, said in (
                ("paralel", "no handle is called paralel, did you mean parallel?"),
                ("state", "state is the worker, seen in part: it is always there"),
            )
        ),
    ],
)
def test_what_is_wrong_with_a_checklist_is_an_error_of_the_recipe(old: str, new: str, said: str):
    text = (TEXT + WAIVER).replace(old, new, 1)
    assert text != TEXT + WAIVER
    with pytest.raises(MigrationError, match=r"^slice[.]toml: line") as raised:
        parse_recipe(text, "slice.toml")
    assert raised.value.code == "MG401" and said in str(raised.value)


def test_tests_are_named_by_phase():
    text = TEXT.replace("[checklist.budget]", f"{TESTS}gate = ['tests/test_kv.py']\n[checklist.budget]")
    found = parse_checklist(text, "slice.toml")
    assert found.tests_of("gate") == ("tests/test_kv.py",) and found.tests_of("port") == ()


def test_a_recipe_without_a_checklist_has_the_rules_of_every_slice():
    text = TEXT[: TEXT.index("[checklist.flag]")]
    assert parse_checklist(text, "x").items == ()
    found = report(tree("port"), "port", text=text)
    assert not found.findings and len(found.checks) == 21 and found.looked > 100


def test_a_slice_that_is_not_ported_is_refused():
    checklist = parse_checklist(TEXT, "slice.toml")
    files = {path: data for path, data in tree("port").items() if path != HANDLER}
    outcome = read_subject(RECIPE, checklist, DictTree(files), TODAY)
    assert isinstance(outcome, NothingThere) and outcome.refusal.code == "MG604"
    empty = {**files, HANDLER: b"class KVCacheManager:\n    def __init__(self) -> None:\n        pass\n"}
    outcome = read_subject(RECIPE, checklist, DictTree(empty), TODAY)
    assert isinstance(outcome, NothingThere) and "no methods" in outcome.refusal.message
