"""Each rule catches what it is there for, at its place, and none of them alarms on an honest tree."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from migration.check.model import Finding, Report
from migration.check.rules import RULES
from migration.check.subject import Changed
from migration.code.source import read_source
from migration.explanations import explanations
from migration.recipe import host_handle
from migration.recipe_checklist import PHASES

from ..support import DictTree
from .mutants import MUTANTS, NEW, Mutant
from .support import HANDLER, RECIPE, TEXT, TODAY, WORKER, edited, report, tree

#: Rules whose mutants are not edits of a file: dates, revisions.
ELSEWHERE = {"MG630", "MG636"}


@pytest.mark.parametrize("phase", PHASES)
def test_an_honest_tree_is_clean_and_every_item_has_looked_at_something(phase: str):
    found = report(tree(phase), phase)
    assert found.phase == phase
    assert not found.findings and not found.errors
    own = [check for check in found.checks if check.line and phase in ("port", "gate", "cleanup")]
    assert own and all(check.status == "passed" and check.looked and check.evidence for check in own)
    judged = {check.rule for check in found.checks if check.status == "passed"}
    missing = {rule.name for rule in RULES if phase in rule.phases} - judged
    assert missing <= {"budget"}, missing


def test_every_rule_has_a_mutant_and_an_explanation():
    assert {mutant.code for mutant in MUTANTS} | ELSEWHERE == {rule.code for rule in RULES}
    assert {rule.code for rule in RULES} <= explanations().keys()
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)


def mutated(mutant: Mutant) -> dict[str, bytes]:
    files = tree(mutant.phase)
    if mutant.old == NEW:
        return {**files, mutant.path: mutant.new.encode()}
    return edited(files, mutant.path, mutant.old, mutant.new)


def caught(mutant: Mutant, files: dict[str, bytes]) -> tuple[Report, list[Finding]]:
    found = report(files, mutant.phase, asked=True)
    return found, [finding for finding in found.findings if finding.code == mutant.code]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.code}-{m.phase}-{MUTANTS.index(m)}")
def test_a_mutant_is_caught_at_its_place(mutant: Mutant):
    files = mutated(mutant)
    _, findings = caught(mutant, files)
    assert findings, "not caught"
    path = mutant.at or mutant.path
    data = files[path].decode()
    line = data[: data.index(mutant.line)].count("\n") + 1 if mutant.line else 0
    places = {(finding.place.path, finding.place.line) for finding in findings}
    assert (path, line) in places
    for finding in findings:
        assert finding.message and finding.way_out and finding.title


@pytest.mark.parametrize(
    "mutant", [m for m in MUTANTS if m.fixed], ids=lambda m: f"{m.code}-{m.phase}-{MUTANTS.index(m)}"
)
def test_a_fix_mends_the_finding(mutant: Mutant):
    files = mutated(mutant)
    _, findings = caught(mutant, files)
    (finding,) = [one for one in findings if one.fix is not None]
    assert finding.fix is not None and finding.fix.patch.startswith("diff --git")
    after = files[finding.fix.path]
    source = read_source(finding.fix.path, after)
    for one in sorted(finding.fix.replacements, key=lambda r: (r.line, r.column), reverse=True):
        lines = [line.decode() for line in source.lines] + [""]
        start = sum(len(line.encode()) for line in lines[: one.line - 1])
        end = sum(len(line.encode()) for line in lines[: one.end_line - 1])
        start += len(lines[one.line - 1][: one.column - 1].encode())
        end += len(lines[one.end_line - 1][: one.end_column - 1].encode())
        after = after[:start] + one.text.encode() + after[end:]
    _, left = caught(mutant, {**files, finding.fix.path: after})
    assert not left


def test_an_edit_that_is_carried_over_brings_its_import_and_its_protocol_member():
    body = "\t\tself.held.update(uuids)\n"
    files = edited(tree("gate"), WORKER, body, "\t\tself.held = NodeStats(self.stream, self.fresh)\n")
    (finding,) = [one for one in report(files, "gate").findings if one.code == "MG632"]
    assert finding.fix is not None
    after = files[HANDLER].decode().splitlines(keepends=True)
    for one in sorted(finding.fix.replacements, key=lambda r: r.line, reverse=True):
        assert one.column == one.end_column == 1
        after[one.line - 1 : one.end_line - 1] = one.text.splitlines(keepends=True)
    mended = {**files, HANDLER: "".join(after).encode()}
    assert (
        b"import DualKVCacheCoordinator, NodeStats" in mended[HANDLER]
        and b"def fresh(self)" in mended[HANDLER]
    )
    left = report(mended, "gate").findings
    assert {one.code for one in left} <= {"MG625", "MG645"}  # what the edit itself has done


CONSTRUCTOR = TEXT[
    TEXT.index('[[checklist.items]]\ntitle = "Constructor') : TEXT.index(
        '[[checklist.items]]\ntitle = "Primary'
    )
]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "        parallel: Parallel,\n",
            "        parallel: Parallel,\n        extra: Any,\n",
            "extra is no handle",
        ),
        (
            "        parallel: Parallel,\n        state: KvState,\n",
            "        state: KvState,\n        parallel: Parallel,\n",
            "the order is",
        ),
        ("        self,\n        *,\n", "        self,\n        more,\n        *,\n", "not keyword-only"),
        ("        state: KvState,\n", "        state: KvState = None,\n", "a handle has a default"),
    ],
)
def test_without_a_signature_the_constructor_is_the_recipes(old: str, new: str, said: str):
    text = TEXT.replace(CONSTRUCTOR, "")
    assert text != TEXT and not report(tree("port"), "port", text=text).findings
    found = report(edited(tree("port"), HANDLER, old, new), "port", text=text).findings
    assert any(one.code == "MG621" and said in one.message for one in found)


OPTIONAL = '[[checklist.items]]\nrule = "optional-handle"\noptional = ["parallel"]\n'


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("self._parallel is not None", []),
        (
            "self._rebalancer is not None",
            ["asks whether a handle is there", "nobody asks whether it is there"],
        ),
        ('getattr(self._parallel, "available", False)', ["asks a Protocol", "nobody asks"]),
        ('self._parallel is not None and hasattr(self._parallel, "available")', ["asks a Protocol"]),
        ("self._parallel.available", ["the checklist calls parallel optional, and nobody asks"]),
    ],
)
def test_only_whether_an_optional_handle_is_there_may_be_asked(asked: str, said: list[str]):
    files = edited(tree("port"), HANDLER, "if self._parallel.available:", f"if {asked}:")
    messages = [
        one.message for one in report(files, "port", text=TEXT + OPTIONAL).findings if one.code == "MG618"
    ]
    assert len(messages) == len(said)
    assert all(any(words in message for message in messages) for words in said), messages


def test_a_cleaned_up_slice_without_its_proof_is_a_finding():
    from migration.check.reading import Ready, read_subject
    from migration.check.run import check
    from migration.recipe_checklist import parse_checklist

    ready = read_subject(RECIPE, parse_checklist(TEXT, "x"), DictTree(tree("cleanup")), TODAY)
    assert isinstance(ready, Ready)
    assert [one.code for one in check(ready.subject, "").findings] == ["MG632"]


def test_a_slice_that_came_later_is_taken_off_before_the_proof_is_read():
    from migration.check.reading import Ready, read_subject
    from migration.check.run import check
    from migration.recipe_checklist import parse_checklist

    from .support import in_phases, phases

    other = dataclasses.replace(
        RECIPE,
        name="later",
        section="",
        methods=("append",),
        target_file="app/worker/later.py",
        handler_class="Later",
        handles=(host_handle("Worker"),),
        rewrites=(),
        snapshot=None,
    )
    files, later = in_phases(other, tree("cleanup"))["cleanup"]
    proofs = [later, phases()["cleanup"][1]]
    checklist = parse_checklist(TEXT, "x")
    ready = read_subject(RECIPE, checklist, DictTree(files), TODAY, proofs=proofs)
    assert isinstance(ready, Ready)
    assert not check(ready.subject, "").findings
    alone = read_subject(RECIPE, checklist, DictTree(files), TODAY, proofs=proofs[1:])
    assert isinstance(alone, Ready)
    assert {one.code for one in check(alone.subject, "").findings} == {"MG632"}


def test_a_port_in_parts_is_compared_part_by_part():
    """A method that is not there yet is no drift; one that is there is compared."""
    text = tree("port")[HANDLER].decode()
    start, end = text.index("    def _evict("), text.index("    def _load(")
    part = {**tree("port"), HANDLER: (text[:start] + text[end:]).encode()}
    assert "MG632" not in {one.code for one in report(part, "port").findings}
    broken = edited(
        part, HANDLER, "        return gathered\n        dist", "        return None\n        dist"
    )
    assert "MG632" in {one.code for one in report(broken, "port").findings}


def test_a_watermark_may_come_as_a_function_of_the_snapshot_or_as_a_field_of_a_plan():
    line = "        host_kv_eviction_watermark = self._config.total_pages * self._config.watermark_percent // 100\n"
    start = edited(
        tree("port"),
        HANDLER,
        line + "        return used > host_kv_eviction_watermark\n",
        "        return used > host_kv_eviction_watermark(self._config)\n",
    )
    function = (
        "\n\ndef host_kv_eviction_watermark(config: KvConfig) -> int:\n    return config.total_pages // 10\n"
    )
    good = {**start, HANDLER: start[HANDLER] + function.encode()}
    assert "MG612" not in {one.code for one in report(good, "port").findings}
    bad = {**start, HANDLER: start[HANDLER] + function.replace("config.total_pages // 10", "10").encode()}
    assert "MG612" in {one.code for one in report(bad, "port").findings}
    given = edited(
        tree("port"),
        HANDLER,
        line,
        "        plan = dict(host_kv_eviction_watermark=self._config.total_pages)\n",
    )
    given = edited(given, HANDLER, "used > host_kv_eviction_watermark", "used > plan")
    assert "MG612" not in {one.code for one in report(given, "port").findings}


def test_lines_over_the_budget_of_the_phase_are_a_finding():
    small = Changed("main", 120, 30, (HANDLER,))
    assert not report(tree("gate"), "gate", changed=small).findings
    (finding,) = report(tree("gate"), "gate", changed=Changed("main", 121, 0, (HANDLER,))).findings
    assert (
        finding.code == "MG630"
        and "121 lines added since main, the budget of the phase is 120" in finding.message
    )
    (finding,) = report(tree("port"), "port", changed=Changed("main", 501, 0, (HANDLER,))).findings
    assert finding.code == "MG630"
    nothing = report(tree("port"), "port", changed=Changed("main", 0, 0, ()))
    assert [check.status for check in nothing.checks if check.rule == "budget"] == ["absent"]


def test_an_overdue_flag_and_one_without_owner_are_findings():
    late = report(tree("gate"), "gate", today=datetime.date(2026, 7, 27))
    (finding,) = late.findings
    assert finding.code == "MG636" and "61 days old, 60 are allowed; ask KV team" in finding.message
    assert finding.place.line == TEXT[: TEXT.index("[checklist.flag]")].count("\n") + 1
    assert not report(tree("gate"), "gate", today=datetime.date(2026, 7, 26)).findings
    text = TEXT.replace(
        '[checklist.flag]\nowner = "KV team"\nintroduced = 2026-05-27\nmax_age_days = 60\n', ""
    )
    (finding,) = report(tree("gate"), "gate", text=text).findings
    assert finding.code == "MG636" and "no owner" in finding.message
    (finding,) = report(tree("gate"), "gate", today=datetime.date(2026, 1, 1)).findings
    assert "in the future" in finding.message


def test_the_class_may_hand_the_model_back_instead_of_the_handler():
    """The seed leaves open who does it: then each caller of the handler's method has to."""
    after = "        self._state.model = self._executor.model\n"
    files = edited(tree("cleanup"), HANDLER, after, "        return None\n")
    open_ = [one for one in report(files, "cleanup").findings if one.code == "MG620"]
    assert {one.place.path for one in open_} == {HANDLER} and "line" in open_[0].message
    call = "\t\tself._configure(uuids)\n"
    synced = edited(files, WORKER, call, call + "\t\tself.model = self.executor.model\n")
    assert not [one for one in report(synced, "cleanup").findings if one.code == "MG620"]
    half = edited(files, WORKER, call, call + "\t\tif uuids:\n\t\t\tself.model = self.executor.model\n")
    assert [one for one in report(half, "cleanup").findings if one.code == "MG620"]


def test_a_phase_that_the_tree_is_not_in_is_full_of_findings():
    found = report(tree("port"), "gate", asked=True)
    missing = [finding for finding in found.findings if finding.code == "MG631"]
    assert len(missing) == 10 and "has no gate" in missing[0].message  # nine methods, and the gate itself
    assert "the tree is in port" in found.found_by
    early = report(tree("gate"), "port", asked=True)
    assert {"MG631"} <= {finding.code for finding in early.findings}
    late = report(tree("gate"), "cleanup", asked=True)
    assert {"MG631", "MG632"} <= {finding.code for finding in late.findings}
