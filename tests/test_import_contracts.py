"""The direction of imports is the architecture: checked on the source and in fresh interpreters."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("batchgen", "migration", "pipeline", "shadow", "reports")

# package -> top-level modules it must not import, anywhere in its source
FORBIDDEN = {
    "batchgen": {"migration", "pipeline", "reports", "shadow"},
    "migration": {"torch", "batchgen", "pipeline", "shadow"},
    "pipeline": {"batchgen"},
    "reports": {"torch", "batchgen", "migration", "pipeline", "shadow"},
    "shadow": {"migration", "pipeline"},
}
# The one exception: a gated worker calls this light module.
ALLOWED = {("batchgen", "shadow.experiment")}


def imported_modules(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
    return found


def violations(package: str, source: str) -> set[str]:
    return {
        module
        for module in imported_modules(source)
        if module.split(".")[0] in FORBIDDEN[package] and (package, module) not in ALLOWED
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"no source found for {package}"
    broken = {
        str(path.relative_to(ROOT)): sorted(bad)
        for path in files
        if (bad := violations(package, path.read_text(encoding="utf-8")))
    }
    assert not broken, f"imports against DESIGN's direction: {broken}"


def test_the_contract_sees_a_violation() -> None:
    assert violations("migration", "def f():\n    import torch.nn\n") == {"torch.nn"}
    assert violations("batchgen", "from shadow.compare import x\n") == {"shadow.compare"}
    assert violations("batchgen", "from shadow.experiment import Experiment\n") == set()


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(m.split('.')[0] for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("batchgen", {"torch", "rich"}),
        ("batchgen.cli", {"torch"}),
        ("migration.cli", {"libcst", "rich", "torch", "batchgen"}),
        ("shadow.cli", {"torch", "batchgen"}),
        ("reports", {"torch", "batchgen"}),
    ],
)
def test_a_command_line_starts_light(module: str, heavy: set[str]) -> None:
    assert not loaded_after(f"import {module}") & heavy
