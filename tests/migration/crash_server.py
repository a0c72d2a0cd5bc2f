"""A warm process that forks writers and kills them: `python -m tests.migration.crash_server`.

Each line of its input is JSON: `action` (write or undo), `root`, `delay` in seconds or null for no kill, and
the moment `since` which it counts: start, commit (the manifest is in place) or first (so is the first file).
The answer is a line of JSON: whether the writer was `killed`, the `seconds` it took and those `until` then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from migration.ledger import journal, undo

from .disk_faults import changes_between

FOLDERS = ("a", "b", "c/d")
OLD = {f"{folder}/{number}.py": b"old %d\n" % number for folder in FOLDERS for number in range(3)}
#: Of each folder one file stays as it is, one goes; one folder is new.
NEW = {
    **{path: data.replace(b"old", b"new") * 2000 for path, data in OLD.items() if not path.endswith("2.py")},
    **{f"new/deep/{number}.py": b"new\n" for number in range(2)},
}
CHANGES = changes_between(OLD, NEW)


def act(action: str, root: Path) -> None:
    if action == "write":
        journal.write_all(root, CHANGES, label="port")
    else:
        plan = undo.plan_undo(root)
        assert isinstance(plan, undo.UndoPlan)
        undo.undo(root, plan)


def reached(since: str, action: str, root: Path) -> bool:
    if since == "first":
        # An undo begins with what the write did last: the new files.
        last = root / list(NEW)[-1]
        return not last.exists() if action == "undo" else (root / CHANGES[0].path).stat().st_size > 10
    return since == "start" or (root / journal.JOURNAL / "manifest.json").exists()


def serve(action: str, root: Path, delay: float | None, since: str) -> dict[str, object]:
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(go, b".")
        try:
            act(action, root)
        finally:
            os._exit(0)
    os.close(go)
    os.read(ready, 1)
    os.close(ready)
    start = time.perf_counter()
    ended = 0
    while not ended and not reached(since, action, root):
        time.sleep(0.00005)
        ended, _ = os.waitpid(child, os.WNOHANG)
    until = time.perf_counter()
    if delay is not None and not ended:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    status = 0 if ended else os.waitpid(child, 0)[1]
    seconds = time.perf_counter() - start
    return {"killed": os.WIFSIGNALED(status), "seconds": seconds, "until": until - start}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(serve(**{**asked, "root": Path(asked["root"])})), flush=True)
