"""A repository whose packages lie under `src/`: imports, cycles, overrides and callers are looked for there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from migration.cli import main
from migration.code.import_graph import ImportGraph
from migration.code.source import Source
from migration.move.cut import CutPlan, plan_cut
from migration.recipe import parse_recipe
from migration.split.managers import Managers

from .support import DictTree, codes
from .test_cli import git

FILES = {
    "src/pkg/__init__.py": "",
    "src/pkg/worker.py": '''\
from pkg.helpers import label
from pkg.limits import LIMIT


class Worker:
    def __init__(self):
        self.rows = []

    def put(self, row):
        """Add one."""
        if self._size() < LIMIT:
            self.rows.append(label(row))
        return self._size()

    def _size(self):
        return len(self.rows)
''',
    # Imports the worker back, once what the worker takes from it is there.
    "src/pkg/helpers.py": "def label(row):\n    return f'<{row}>'\n\n\nimport pkg.worker\n",
    "src/pkg/limits.py": "LIMIT = 3\n\n\ndef raise_limit():\n    global LIMIT\n    LIMIT = 9\n",
    "src/pkg/sized.py": "from pkg.worker import Worker\n\n\nclass Sized(Worker):\n"
    "    def _size(self):\n        return 2 + super()._size()\n",
    "tests/use.py": "import pkg.worker, pkg.limits\nfrom pkg.sized import Sized\npkg.limits.raise_limit()\n"
    "for worker in (pkg.worker.Worker(), Sized()):\n    print([worker.put(row) for row in 'abcdef'], worker.rows)\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "start")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def migrate(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def run(root: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plan_port_verify_and_inline_under_src(root: Path, capsys: pytest.CaptureFixture[str]):
    before = run(root, "tests/use.py")
    asked = ["src/pkg/worker.py", "--methods", "put,_size", "--write", "cache.toml"]
    assert migrate("plan", *asked) == 0
    said = capsys.readouterr().out
    assert "put by 1 other file" in said, "tests/use.py calls it"
    assert "replaced by other files, so called through the worker: _size" in said
    recipe = (root / "cache.toml").read_text()
    assert 'import_root = "src"' in recipe and 'late_bound = ["_size"]' in recipe
    git(root, "add", ".")
    git(root, "commit", "-qm", "recipe")

    assert migrate("port", "cache.toml", "--cut") == 0
    assert "seem to start" not in capsys.readouterr().out
    handler = next((root / "src/pkg/worker_parts").glob("[a-z]*.py")).relative_to(root / "src")
    module = ".".join(handler.with_suffix("").parts)
    for first in (module, "pkg.worker", "pkg.helpers", "pkg.sized"):
        run(root, "-c", f"import {first}")
    assert run(root, "tests/use.py") == before
    assert migrate("verify", "--base", "HEAD") == 0
    git(root, "add", ".")
    git(root, "commit", "-qm", "cut")
    assert migrate("inline", "put") == 0
    assert (root / "src/pkg/worker.py").read_text() == FILES["src/pkg/worker.py"]


RECIPE = """\
schema = 1
name = "cache"
[source]
file = "src/pkg/worker.py"
class = "Worker"
methods = ["put", "_size"]
import_root = "src"
[target]
file = "src/pkg/cache.py"
class = "Cache"
"""


def test_a_module_that_leads_back_and_a_frozen_name_are_taken_from_the_worker():
    tree = DictTree({path: text.encode() for path, text in FILES.items()})
    plan = plan_cut(parse_recipe(RECIPE, "cache.toml"), tree)
    assert isinstance(plan, CutPlan)
    handler = next(c.after for c in plan.changes if c.path == "src/pkg/cache.py").decode()
    assert "        from pkg.worker import LIMIT, label\n" in handler
    assert "import label\n\n" not in handler, "label must not be imported at the top"


def test_a_target_in_a_package_that_leads_back_is_refused_under_src_too():
    files = FILES | {"src/pkg/sub/__init__.py": "import pkg.worker\n"}
    recipe = parse_recipe(RECIPE.replace("src/pkg/cache.py", "src/pkg/sub/cache.py"), "cache.toml")
    outcome = plan_cut(recipe, DictTree({path: text.encode() for path, text in files.items()}))
    assert codes(outcome) == ["MG105"]


def test_a_root_that_the_recipe_does_not_give_is_spoken_of():
    tree = DictTree({path: text.encode() for path, text in FILES.items()})
    plan = plan_cut(parse_recipe(RECIPE.replace('import_root = "src"\n', ""), "cache.toml"), tree)
    assert isinstance(plan, CutPlan)
    (note,) = (note for note in plan.notes if "start at" in note)
    assert note.startswith(
        "recipe: the imports of src/pkg/worker.py seem to start at src: give `import_root ="
    )
    given = plan_cut(parse_recipe(RECIPE, "cache.toml"), tree)
    assert isinstance(given, CutPlan)
    assert not [note for note in given.notes if "start at" in note]


def test_own_modules_are_told_from_installed_ones_below_the_root():
    worker = FILES["src/pkg/worker.py"].replace("pkg.helpers import label", "pkg.plain import label")
    files = FILES | {"src/pkg/worker.py": worker.replace("from pkg.limits", "import yaml\nfrom pkg.limits")}
    files["src/pkg/worker.py"] = files["src/pkg/worker.py"].replace("label(row)", "label(yaml, row)")
    files["src/pkg/plain.py"] = "def label(y, row):\n    return row\n"
    plan = plan_cut(
        parse_recipe(RECIPE, "cache.toml"), DictTree({path: text.encode() for path, text in files.items()})
    )
    assert isinstance(plan, CutPlan)
    handler = next(c.after for c in plan.changes if c.path == "src/pkg/cache.py").decode()
    assert "import yaml\n\nfrom pkg.plain import label\n" in handler


@pytest.mark.parametrize(("root", "found"), [("src", ("a.one", "a.two", "a.goal")), ("", None)])
def test_the_import_graph_starts_at_the_root(root: str, found: tuple[str, ...] | None):
    files = {
        "src/a/__init__.py": b"",
        "src/a/one.py": b"from . import two\n",
        "src/a/two.py": b"import a.goal\n",
    }
    assert ImportGraph(DictTree(files | {"src/a/goal.py": b""}), "a.goal", root).chain("a.one") == found


def test_split_reads_context_managers_of_other_modules_under_src():
    text = b"from pkg.guards import lets_out\n\nclass Worker:\n"
    text += b"    def run(self):\n        with lets_out():\n            pass\n"
    guards = b"from contextlib import contextmanager\n\n@contextmanager\ndef lets_out():\n    yield\n"
    tree = DictTree({"src/pkg/__init__.py": b"", "src/pkg/worker.py": text, "src/pkg/guards.py": guards})
    source = Source("src/pkg/worker.py", text)
    worker = source.tree.body[1]
    method = worker.body[0]  # type: ignore[attr-defined]
    managers = Managers(source, worker, method, tree)  # type: ignore[arg-type]
    assert managers.propagates(method.body[0].items[0])


def test_plan_asks_only_the_folders_below_the_root_for_module_names(tmp_path: Path):
    folder = tmp_path / "my-src" / "pkg"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "worker.py").write_text(FILES["src/pkg/worker.py"])
    path = "my-src/pkg/worker.py"
    assert migrate("plan", str(tmp_path / path), "--methods", "put,_size", "--repo", str(tmp_path)) == 0
