"""Files written by hand, and the share of a handler module that comes from the codemod."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migration.code.tree import OverlayTree, Tree
from migration.errors import CATALOGUE, MigrationError
from migration.inverse.inline import InlinePlan, plan_inline
from migration.inverse.replay import plan_replay
from migration.ledger.change import FileChange
from migration.move.cut import CutPlan, CutRefused, plan_cut
from migration.phases.cleanup import CleanupPlan, CleanupRefused, plan_cleanup
from migration.phases.gate import GatePlan, GateRefused, plan_gate
from migration.phases.port import PortPlan, PortRefused, plan_port
from migration.proofs.record import (
    ProofFile,
    digest,
    dumps,
    loads,
    record,
    record_cleanup,
    record_gate,
    record_port,
)
from migration.proofs.share import Share
from migration.proofs.verify import Broken, Verified, verify
from migration.recipe import parse_recipe
from migration.recipe_text import recipe_text

from .request_slice import BACKENDS, TEXT, WORKER
from .support import DictTree, tree_of
from .test_cli import migrate

PLANS, NOTES = "app/plans.py", "docs/cache.md"
RECIPE_TEXT = f'{TEXT}\n[human]\nfiles = ["{PLANS}", "{NOTES}"]\n'
RECIPE = parse_recipe(RECIPE_TEXT, "x.toml")
TREE = DictTree(
    {
        **tree_of(WORKER, app__backends=BACKENDS).files,
        PLANS: b"class Plan:\n    pass\n",
        NOTES: b"# Cache\n",
    }
)
HANDLER = RECIPE.target_file
NAMED = ((PLANS, digest(TREE.files[PLANS])), (NOTES, digest(TREE.files[NOTES])))


def after(tree: Tree, changes: tuple[FileChange, ...]) -> OverlayTree:
    return OverlayTree(tree, {change.path: change.after for change in changes})


def in_phases(note: bytes = b"") -> dict[str, tuple[OverlayTree, ProofFile]]:
    """The tree and the proof file of each phase; `note` is put behind the handler once it is ported."""
    cut = plan_cut(RECIPE, TREE)
    assert isinstance(cut, CutPlan), cut
    port = plan_port(RECIPE, TREE)
    assert isinstance(port, PortPlan), port
    ported = after(TREE, port.changes)
    proofs = {"cut": (after(TREE, cut.changes), record(cut)), "port": (ported, record_port(port, ported))}
    edited = OverlayTree(ported, {HANDLER: (ported.read(HANDLER) or b"") + note})
    gate = plan_gate(RECIPE, edited)
    assert isinstance(gate, GatePlan), gate
    gated = after(edited, gate.changes)
    proofs["gate"] = gated, record_gate(gate, edited)
    clean = plan_cleanup(RECIPE, gated)
    assert isinstance(clean, CleanupPlan), clean
    proofs["cleanup"] = after(gated, clean.changes), record_cleanup(clean, gated)
    return proofs


PHASES = in_phases()
LINES = len((PHASES["port"][0].read(HANDLER) or b"").splitlines())
MOVED = 6


@pytest.mark.parametrize("phase", PHASES)
def test_the_proof_names_them_with_their_hash_and_no_phase_touches_them(phase: str):
    tree, proof = PHASES[phase]
    assert proof.human == NAMED and loads(dumps(proof), "x") == proof
    assert all(tree.read(path) == TREE.read(path) for path in RECIPE.human)
    (verdict,) = verify(tree, [proof])
    assert isinstance(verdict, Verified) and verdict.remarks == ()
    assert verdict.share == Share(HANDLER, MOVED, LINES - MOVED, 0, ((PLANS, 2), (NOTES, 1)))
    assert verdict.share.percent == 100


@pytest.mark.parametrize("phase", PHASES)
def test_an_edit_is_said_and_breaks_nothing_and_a_missing_one_does(phase: str):
    tree, proof = PHASES[phase]
    (verdict,) = verify(OverlayTree(tree, {PLANS: b"class Plan:\n    pages = 0\n    size = 1\n"}), [proof])
    assert isinstance(verdict, Verified)
    assert verdict.remarks == (f"{PLANS}, written by hand, was edited after the proof",)
    assert verdict.share.by_hand == ((PLANS, 3), (NOTES, 1))
    (verdict,) = verify(OverlayTree(tree, {PLANS: None}), [proof])
    assert isinstance(verdict, Broken) and verdict.reasons == (f"{PLANS} is missing",)


def test_a_file_that_is_missing_is_refused_by_every_phase():
    without = {PLANS: None}
    refused = (
        plan_cut(RECIPE, OverlayTree(TREE, without)),
        plan_port(RECIPE, OverlayTree(TREE, without)),
        plan_gate(RECIPE, OverlayTree(PHASES["port"][0], without)),
        plan_cleanup(RECIPE, OverlayTree(PHASES["gate"][0], without)),
    )
    for outcome in refused:
        assert isinstance(outcome, CutRefused | PortRefused | GateRefused | CleanupRefused), outcome
        assert [(r.code, r.where) for r in outcome.refusals] == [("MG126", PLANS)]


def test_inline_and_replay_leave_them_alone():
    tree, proof = PHASES["cut"]
    back = plan_inline(tree, proof)
    assert isinstance(back, InlinePlan) and back.exact
    assert not {change.path for change in back.changes} & set(RECIPE.human)
    replay = plan_replay(RECIPE, {d.key: d.body for d in proof.proof.details}, TREE)
    assert isinstance(replay.outcome, CutPlan) and replay.outcome.human == NAMED


def test_lines_that_somebody_added_before_the_gate_count_against_the_share():
    proofs = in_phases(b"\n\ndef more():\n    return 1\n")
    for phase in ("gate", "cleanup"):
        tree, proof = proofs[phase]
        (verdict,) = verify(tree, [proof])
        assert isinstance(verdict, Verified), verdict
        assert (verdict.share.moved, verdict.share.generated, verdict.share.added) == (
            MOVED,
            LINES - MOVED,
            4,
        )
        assert verdict.share.percent == int(1000 * LINES / (LINES + 4)) / 10


@pytest.mark.parametrize("phase", ["port", "gate"])
def test_an_edited_handler_breaks_the_proof_and_its_share_is_still_told(phase: str):
    tree, proof = PHASES[phase]
    edited = (tree.read(HANDLER) or b"").replace(b"return self._gpu_kv.free", b"return 1 + self._gpu_kv.free")
    (verdict,) = verify(OverlayTree(tree, {HANDLER: edited}), [proof])
    assert isinstance(verdict, Broken) and verdict.share is not None
    assert (verdict.share.moved, verdict.share.added) == (MOVED - 1, 1)
    worker = (tree.read(RECIPE.source_file) or b"").replace(b"self.watermark", b"self.margin")
    (verdict,) = verify(OverlayTree(tree, {RECIPE.source_file: worker}), [proof])
    assert isinstance(verdict, Broken) and verdict.share is None  # of another class nothing is known


def test_one_line_of_many_is_seen():
    assert Share("x.py", 9000, 999, 1, ()).percent == 99.9
    assert Share("x.py", 0, 0, 0, ()).percent == 0


def test_verify_says_it(tmp_path: Path):
    files = {**TREE.files, "slice.toml": RECIPE_TEXT.encode()}
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    assert migrate("port", "slice.toml", "--allow-dirty", cwd=tmp_path).returncode == 0
    (tmp_path / NOTES).write_text("# Cache\n\nMore.\n")
    said = migrate("verify", cwd=tmp_path)
    assert said.returncode == 0
    assert said.stdout.splitlines()[-2:] == [
        f"  beside the proof: {NOTES}, written by hand, was edited after the proof",
        f"  100.0 % of cache.py from the codemod (moved {MOVED}, generated {LINES - MOVED}), "
        "written by hand: plans.py 2 lines, cache.md 3 lines",
    ]
    (row,) = json.loads(migrate("verify", "--json", cwd=tmp_path).stdout)["proofs"]
    assert row["share"] == {
        "percent": 100.0,
        "file": HANDLER,
        "moved": MOVED,
        "generated": LINES - MOVED,
        "added": 0,
        "by_hand": [[PLANS, 2], [NOTES, 3]],
    }
    handler = tmp_path / HANDLER
    handler.write_text(handler.read_text() + "\n\nADDED = 1\n")
    said = migrate("verify", cwd=tmp_path)
    assert said.returncode == 2 and ", 3 added since), written by hand" in said.stdout


def test_it_is_written_down():
    assert parse_recipe(recipe_text(RECIPE), "x") == RECIPE
    assert CATALOGUE["MG126"].way_out


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ('["app/parts/cache.py"]', "app/parts/cache.py is written by the codemod"),
        ('["app/worker.py"]', "app/worker.py is written by the codemod"),
        ('["app/fakes.py"]', "app/fakes.py is written by the codemod"),
        ('["app/p.py", "app/p.py"]', "app/p.py is listed twice"),
        ('["/app/p.py"]', "'/app/p.py' must be a plain path relative to the repository"),
        ('["../p.py"]', "'../p.py' must be a plain path"),
        ('["app//p.py"]', "'app//p.py' must be a plain path"),
        ('["."]', "'.' must be a plain path"),
        ("[1]", "must be a list of strings"),
        ('"app/p.py"', "must be list, is 'app/p.py'"),
    ],
)
def test_mistakes_have_their_line(files: str, problem: str):
    text = TEXT.replace('siblings = "handler"', 'fakes = "app/fakes.py"')
    with pytest.raises(MigrationError) as caught:
        parse_recipe(f"{text}\n[human]\nfiles = {files}\n", "x.toml")
    assert caught.value.code == "MG401" and f"line 51: human.files: {problem}" in str(caught.value)


def test_an_adapter_that_is_written_is_none_of_them():
    text = TEXT.replace('adapter = "app.backends:HostBackend"\n', "")
    text += '\n[[adapters]]\nhandle = "host_kv"\nname = "A"\nfile = "app/a.py"\nwraps = "app.pool:Pool"\n'
    with pytest.raises(MigrationError, match=r"human\.files: app/a\.py is written by the codemod"):
        parse_recipe(f'{text}\n[human]\nfiles = ["app/a.py"]\n', "x.toml")


def test_an_unknown_entry_says_what_was_meant():
    with pytest.raises(MigrationError, match=r"human\.file: unknown entry, did you mean files\?"):
        parse_recipe(f"{TEXT}\n[human]\nfile = []\n", "x.toml")
    with pytest.raises(MigrationError, match=r"humans: unknown entry, did you mean human\?"):
        parse_recipe(f"{TEXT}\n[humans]\nfiles = []\n", "x.toml")
