"""Main is what the table says: made by one command, and an edit beside it is seen."""

from __future__ import annotations

from pathlib import Path

from tests.migration.status.lives import commit, git
from tests.migration.test_cli import migrate

from .repository import WORKER, pipeline, repository, write


def landed(tmp_path: Path) -> Path:
    """Slice 1 cleaned up, slice 2 gated, committed."""
    root = repository(tmp_path / "repo")
    text = (root / "pipeline.toml").read_text()
    text = text.replace("number = 1", 'number = 1\nmain = "cleanup"')
    write(root, "pipeline.toml", text.replace("number = 2", 'number = 2\nmain = "gate"'))
    done = pipeline(root, "land")
    assert done.returncode == 0, done.stderr
    commit(root, "main has the slices")
    return root


def test_landing_is_what_migrate_itself_would_have_written(tmp_path: Path) -> None:
    root = landed(tmp_path)
    by_hand = repository(tmp_path / "by-hand")
    for name, phases in (("cache", ("port", "gate", "cleanup")), ("clock", ("port", "gate"))):
        for phase in phases:
            done = migrate(phase, by_hand / f"slices/{name}.toml", "--repo", by_hand, "--allow-dirty")
            assert done.returncode == 0, done.stderr
    for path in (
        "app/worker.py",
        "app/parts/cache.py",
        "app/parts/clock.py",
        ".migrate/cache.proof.json",
        ".migrate/clock.proof.json",
    ):
        assert (root / path).read_bytes() == (by_hand / path).read_bytes(), path
    assert "_room" not in (root / "app/worker.py").read_text()  # a proof file's mention is no caller
    again = pipeline(root, "land")
    assert again.returncode == 0 and "nothing to do" in again.stdout
    assert git(root, "status", "--porcelain") == ""


def test_an_edit_of_the_kept_class_is_landed_and_one_of_the_class_itself_is_seen(tmp_path: Path) -> None:
    root = landed(tmp_path)
    write(root, "kept/worker.py.txt", WORKER.replace("freed = 0", "freed = 0  # pages"))
    assert pipeline(root, "land", "--check").returncode == 1
    assert pipeline(root, "land").returncode == 0
    assert "freed = 0  # pages" in (root / "app/parts/cache.py").read_text()
    commit(root, "a comment")
    write(root, "app/worker.py", (root / "app/worker.py").read_text() + "\nMINE = 1\n")
    seen = pipeline(root, "land", "--check")
    assert seen.returncode == 1 and "app/worker.py would be changed" in seen.stdout
    refused = pipeline(root, "land")
    assert refused.returncode == 2 and "MINE" in (root / "app/worker.py").read_text()
    assert "edits that git does not have would be lost: app/worker.py" in refused.stderr
    assert pipeline(root, "land", "--allow-dirty").returncode == 0
    assert git(root, "status", "--porcelain") == ""


def test_going_back_takes_handlers_and_proofs_along(tmp_path: Path) -> None:
    root = landed(tmp_path)
    text = (root / "pipeline.toml").read_text()
    write(root, "pipeline.toml", text.replace('main = "cleanup"\n', "").replace('main = "gate"\n', ""))
    assert pipeline(root, "land").returncode == 0
    assert (root / "app/worker.py").read_text() == WORKER
    assert not (root / "app/parts/cache.py").exists() and not list((root / ".migrate").glob("*.json"))


def test_without_the_kept_class_nothing_is_guessed(tmp_path: Path) -> None:
    root = landed(tmp_path)
    assert (root / "kept/worker.py.txt").read_text() == WORKER
    (root / "kept/worker.py.txt").unlink()
    done = pipeline(root, "land")
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "kept/worker.py.txt does not exist, and there is .migrate/cache.proof.json" in done.stderr


def test_golden_folders_hold_what_cleanup_leaves(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    assert pipeline(root, "golden", "--check").returncode == 1
    assert pipeline(root, "golden").returncode == 0
    left = (root / "golden/1.3/app/worker.py.txt").read_text()
    assert "_legacy" not in left and "CacheManager" in left
    assert (root / "golden/1.3/app/parts/cache.py.txt").is_file()
    assert not (root / "golden/2.3").exists()
    assert pipeline(root, "golden", "--check").returncode == 0
    write(root, "app/worker.py", WORKER.replace("freed = 0", "freed = 0  # pages"))
    assert pipeline(root, "golden", "--check").returncode == 1
