"""`migrate plan` as a user meets it: tables, the order of steps, JSON, Mermaid, and the recipe that it writes."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from migration.cli import main
from migration.errors import MigrationError, Refusal
from migration.seams.mikado import Step, mermaid, steps, tree_lines
from migration.seams.plan import Wanted
from migration.seams.write import write_recipe

from .seams_worker import MAIN, POOL, WORKER, planned
from .test_cli import git


@pytest.fixture
def root(tmp_path: Path) -> Path:
    app = tmp_path / "project" / "app"
    app.mkdir(parents=True)
    for name, text in (("worker", WORKER), ("main", MAIN), ("pool", POOL), ("__init__", "")):
        (app / f"{name}.py").write_text(text, encoding="utf-8")
    return app.parent


@dataclass(frozen=True)
class Run:
    returncode: int
    stdout: str
    stderr: str


Migrate = Callable[..., Run]


@pytest.fixture
def migrate(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """`migrate` in this process, in the project."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path) -> Run:
        with pytest.raises(SystemExit) as exit_:
            main(list(map(str, arguments)))
        out = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return Run(exit_.value.code, out.out, out.err)

    return run


@pytest.fixture
def plan(migrate: Migrate) -> Migrate:
    return lambda *arguments: migrate("plan", "app/worker.py", *arguments)


def test_with_nothing_given_it_finds_seams_and_says_what_each_needs(root: Path, plan: Migrate):
    run = plan()
    assert (run.returncode, run.stderr) == (0, "")
    assert "Worker in app/worker.py: 10 methods, 49 lines, 40 of them in methods that may move" in run.stdout
    assert re.search(r"│ 1 │ pages +│ +3 │ +17 │ +4 │ +1 │ +2 of 3 │ +\+\d+ -14 │ yes", run.stdout)
    for said in (
        "1 pages: PagesHandler in app/worker_parts/pages.py",
        "methods (lines): take_pages (8), give_pages (4), count_pages (5)",
        "handles (members): state 2, pool 2",
        "writes: high_water",
        "called from outside: take_pages by step; give_pages by finish",
        ", app/worker_parts/__init__.py +1, app/worker.py +4 -14",
        "narrower, once set in __init__: high_water",
        "next: migrate plan app/worker.py",
    ):
        assert said in run.stdout
    assert not list(root.rglob("*.toml")) and not (root / ".migrate").exists()


def test_the_same_input_gives_the_same_bytes(root: Path):
    outputs = set()
    for seed in ("1", "2"):
        run = subprocess.run(
            [
                sys.executable,
                "-c",
                "from migration.cli import main; main()",
                "plan",
                "app/worker.py",
                "--json",
            ],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1


def test_json_has_what_the_tables_have_and_the_recipes(root: Path, plan: Migrate):
    found = json.loads(plan("--json").stdout)
    assert (found["schema"], found["class"], found["budget"]) == (1, "Worker", 500)
    assert found["order"] == ["pages", "sample", "finish"]
    first, members = found["slices"][0], ["high_water", "pages", "pool.give", "pool.take"]
    assert first["verdict"] == "yes" and first["lines"] == 17 and not first["over_budget"]
    assert first["predicted_members"] == first["members"] == members
    assert first["calls_in"] == [["step", "take_pages"], ["finish", "give_pages"]]
    assert [(d["path"], d["deleted"]) for d in first["diff"]] == [
        *(("app/worker_parts/pages.py", 0), ("app/worker_parts/__init__.py", 0), ("app/worker.py", 14))
    ]
    assert found["slices"][1]["named_in"] == {"step": ["app/main.py"]}
    assert found["steps"][-1]["needs"] == ["slice pages", "slice sample", "slice finish"]
    assert 'class = "PagesHandler"' in first["recipe"]


def test_a_written_recipe_is_cut_as_planned(root: Path, plan: Migrate, migrate: Migrate):
    run = plan("--pick", "2", "--write", "sample.toml")
    assert run.returncode == 0, run.stderr
    assert "│ 2 │ sample" in run.stdout and "│ 1 │" not in run.stdout
    assert "wrote sample.toml; next: migrate port sample.toml --cut --diff" in run.stdout
    assert (root / "sample.toml").read_text().startswith("# 4 methods of Worker, 17 lines, planned by")
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []
    cut = migrate("port", "sample.toml", "--cut")
    assert cut.returncode == 0, cut.stdout + cut.stderr
    assert "SampleHandler.for_worker(self)" in (root / "app" / "worker.py").read_text()
    # What has moved is not planned again.
    assert "sample_tokens (" not in plan().stdout
    run = plan("--section", "Sampling")
    assert run.returncode == 0 and "nothing to plan" in run.stdout


def test_a_recipe_is_refused_once_the_class_has_changed(root: Path, plan: Migrate, migrate: Migrate):
    assert plan("--section", "Pages", "--write", "pages.toml").returncode == 0
    worker = root / "app" / "worker.py"
    worker.write_text(WORKER.replace("total = 0", "total = 1"))
    run = migrate("port", "pages.toml", "--cut")
    assert run.returncode == 2 and "MG109" in run.stdout and "count_pages" in run.stdout
    assert worker.read_text() == WORKER.replace("total = 0", "total = 1")


def test_a_recipe_is_never_overwritten_without_force(root: Path, plan: Migrate):
    target = root / "pages.toml"
    target.write_text("mine\n")
    run = plan("--write", target)
    assert run.returncode == 3 and "MG534" in run.stderr and target.read_text() == "mine\n"
    assert plan("--write", target, "--force").returncode == 0
    assert target.read_text() != "mine\n"
    target.unlink()
    target.symlink_to(root / "elsewhere.toml")
    assert plan("--write", target).returncode == 3 and target.is_symlink()


def test_what_does_not_move_is_not_written(root: Path, plan: Migrate):
    worker = root / "app" / "worker.py"
    worker.write_text(WORKER.replace("total = 0", "total = len(locals())"))
    run = plan("--methods", "count_pages", "--write", "count.toml")
    assert run.returncode == 2 and "not written: count.toml" in run.stdout and "MG011" in run.stdout
    assert not (root / "count.toml").exists()
    run = plan("--section", "Pages", "--write", "pages.toml")
    assert run.returncode == 0 and "2 of 3: MG011" in run.stdout
    assert "   └─ MG011 count_pages:39 depends on the frame or namespace it runs in" in run.stdout
    assert 'stays = [\n    "count_pages",  # MG011' in (root / "pages.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--section", "Page"), "MG101"),
        (("--methods", "nothing"), "MG535"),
        (("--class", "No"), "MG102"),
        (("--pick", "9", "--write", "x.toml"), "MG533"),
        (("--write", "x.txt"), "MG537"),
        (("--repo", "app"), "MG531"),
        (("--repo", "elsewhere"), "MG313"),
    ],
)
def test_errors_exit_3_and_say_what_to_do(root: Path, plan: Migrate, arguments: tuple[str, ...], code: str):
    (root / "elsewhere").mkdir()
    run = plan(*arguments)
    assert run.returncode == 3 and code in run.stderr and "way out:" in run.stderr, run.stderr
    assert not list(root.glob("x.*"))


@pytest.mark.parametrize(
    "arguments",
    [("--budget", "0"), ("--top", "x"), ("--section", "a", "--methods", "b"), ("--json", "--mermaid")],
)
def test_wrong_usage_exits_64(root: Path, plan: Migrate, arguments: tuple[str, ...]):
    assert plan(*arguments).returncode == 64


def test_a_file_may_be_named_from_the_repository_or_from_here(
    root: Path, migrate: Migrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    by_path = migrate("plan", root / "app" / "worker.py", "--repo", root, "--json")
    by_name = migrate("plan", "app/worker.py", "--repo", root, "--json")
    assert by_path.returncode == 0 and by_path.stdout == by_name.stdout
    assert migrate("plan", "app/no.py").returncode == 3


def test_a_recipe_is_an_ordinary_file(root: Path):
    write_recipe(root / "a.toml", "text", force=False)
    (root / "b").write_text("")
    assert stat.S_IMODE((root / "a.toml").stat().st_mode) == stat.S_IMODE((root / "b").stat().st_mode)


def test_two_writers_do_not_overwrite_each_other(root: Path, monkeypatch: pytest.MonkeyPatch):
    target = root / "a.toml"
    real = os.link

    def late(source: str, name: Path) -> None:
        target.write_text("theirs")
        real(source, name)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(MigrationError, match="is there already"):
        write_recipe(target, "mine", force=False)
    assert target.read_text() == "theirs" and list(root.glob(".a.toml*")) == []


def test_interrupted_while_it_tries_nothing_is_left(root: Path):
    command = [sys.executable, "-c", SLOW, "plan", "app/worker.py", "--write", "pages.toml"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stdout.readline() == b"trying\n"
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=30)
    assert run.returncode == 128 + signal.SIGINT and errors == b"migrate: interrupted\n"
    assert not list(root.glob("*.toml")) and not list(root.glob(".*"))


SLOW = """
import time
from migration.seams import plan
def slow(*_):
    print("trying", flush=True)
    time.sleep(30)
plan.try_out = slow
from migration.cli import main
main()
"""


def test_a_signal_while_the_recipe_is_written_comes_after_it(root: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.fsync

    def interrupted(descriptor: int) -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"after .* was written"):
        write_recipe(root / "a.toml", "text", force=False)
    assert (root / "a.toml").read_text() == "text" and list(root.glob(".a.toml*")) == []


# What comes first.


def test_a_section_over_the_budget_waits_for_its_parts_and_long_methods_for_a_split():
    found = steps(planned(wanted=Wanted(section="Pages", budget=7)))
    assert [step.key for step in found] == [
        *("split take_pages", "slice pages_a", "slice pages_b", "slice pages_c", "slice pages", "goal")
    ] or found[-1].needs == ("slice pages",)
    by_key = {step.key: step for step in found}
    assert set(by_key["slice pages"].needs) >= {"slice pages_a", "slice pages_b", "split take_pages"}
    assert (
        "migrate split app/worker.py take_pages --class Worker --budget 10" in by_key["split take_pages"].text
    )
    assert by_key["goal"].text == "pages taken out of Worker"


def _long(name: str, line: str) -> str:
    body = "".join(f"        {line.format(n)}\n" for n in range(30))
    return f"    def {name}(self):\n{body}        return self.done\n\n"


LONG = WORKER.replace(
    "    # ============ Sampling",
    _long("drain", "self.done += {}")
    + _long("feed", "yield {}")
    + '    def told(self):\n        """\n'
    + "        Said.\n" * 30
    + '        """\n        return self.done\n\n    # ============ Sampling',
    1,
)


def test_a_method_over_the_budget_is_split_in_memory_and_the_plan_says_what_came_of_it():
    plan = planned(LONG, Wanted(methods=("drain", "feed", "told", "count_pages"), budget=20))
    said = {step.key: step.text for step in steps(plan) if step.kind == "split"}
    head = "migrate split app/worker.py {} --class Worker --budget 20 ({})"
    assert set(said) == {"split drain", "split feed", "split told"}
    assert said["split drain"].endswith(head.format("drain", "splits into 2 pieces"))
    refused = "refused: MG508 32 of its lines would stay, and the budget is 20; --budget 32 can be met"
    assert said["split feed"].endswith(head.format("feed", refused))
    short = "no more than 20 lines without docstring and comments: raise --budget"
    assert said["split told"].endswith(head.format("told", short))


def test_json_has_what_a_split_would_make(root: Path, plan: Migrate):
    (root / "app/worker.py").write_text(LONG)
    found = json.loads(plan("--methods", "drain,feed", "--budget", "20", "--json").stdout)["splits"]
    assert [(one["method"], one["pieces"]) for one in found] == [("drain", 2), ("feed", 0)]
    assert found[0]["refusals"] == [] and found[0]["lines"] == 32
    assert found[1]["refusals"][0]["code"] == "MG508"
    assert found[0]["command"] == "migrate split app/worker.py drain --class Worker --budget 20"
    assert (root / "app/worker.py").read_text() == LONG, "nothing is written"
    made = plan("--methods", "drain,feed", "--json")
    assert json.loads(made.stdout)["splits"] == []


def test_the_split_that_the_plan_names_gives_as_many_pieces(root: Path, migrate: Migrate, plan: Migrate):
    (root / "app/worker.py").write_text(LONG)
    (found,) = json.loads(plan("--methods", "drain", "--budget", "20", "--json").stdout)["splits"]
    made = migrate(*found["command"].split()[1:], "--json", "--allow-dirty")
    assert (made.returncode, 1 + len(json.loads(made.stdout)["helpers"])) == (0, found["pieces"])


def test_a_slice_waits_for_those_that_it_calls():
    needs = {step.key: step.needs for step in steps(planned())}
    assert needs["slice sample"] == needs["slice finish"] == ("slice pages",) and needs["slice pages"] == ()


def test_every_step_comes_after_what_it_needs():
    for wanted in (Wanted(), Wanted(budget=6), Wanted(section="Pages", budget=5)):
        seen: set[str] = set()
        for step in steps(planned(WORKER.replace("total = 0", "total = vars()"), wanted)):
            assert set(step.needs) <= seen
            seen.add(step.key)


STEPS = (
    Step("fix a", "fix", 'MG011 a:3 uses "x" <b> #1: do this', ()),
    Step("slice b", "slice", "2 b: 3 methods", ("fix a",)),
    Step("slice c", "slice", "1 c: 2 methods", ("slice b", "fix a")),
    Step("goal", "goal", "Worker taken apart", ("slice b", "slice c")),
)


def test_a_step_is_told_once_in_the_tree():
    assert tree_lines(STEPS) == [
        "Worker taken apart",
        "├─ 2 b: 3 methods",
        '│  └─ MG011 a:3 uses "x" <b> #1: do this',
        "└─ 1 c: 2 methods",
        "   ├─ 2 b (above)",
        "   └─ MG011 a (above)",
    ]


def test_mermaid_has_every_step_and_no_character_that_ends_a_label():
    text = mermaid(STEPS)
    assert text.splitlines()[0] == "graph BT"
    labels = re.findall(r'\["?\(?"?(.*?)"\]?\)?\]?$', text, re.MULTILINE)
    assert all(not re.search(r'["<>]', label) for label in labels)
    assert 's0["MG011 a:3 uses #34;x#34; #60;b#62; #35;1: do this"]' in text
    assert text.count("-->") == sum(len(step.needs) for step in STEPS)
    assert "class s0 first" in text and 's3(["Worker taken apart"])' in text


def test_mermaid_of_a_plan_is_printed_alone(root: Path, plan: Migrate):
    run = plan("--mermaid")
    assert run.returncode == 0 and run.stdout.startswith("graph BT\n")
    assert run.stdout.splitlines()[-1].strip().startswith("s") and "│" not in run.stdout


def test_reasons_in_a_tree_name_place_code_and_way_out():
    text = WORKER.replace("total = 0", "total = len(locals())")
    (fix,) = [step for step in steps(planned(text)) if step.kind == "fix"]
    assert fix.text == (
        "MG011 count_pages:39 depends on the frame or namespace it runs in (locals() sees the frame it is "
        "called in): pass the values explicitly, or list it in `stays`"
    )
    assert Refusal("MG011", "count_pages", 39, "").way_out in fix.text


def test_git_is_not_asked(root: Path, plan: Migrate):
    git(root, "init", "-q")
    assert plan("--section", "Pages", "--write", "pages.toml").returncode == 0
