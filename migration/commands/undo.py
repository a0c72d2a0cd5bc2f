"""`migrate undo`: take back the last write."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migration.cli import DONE, REFUSED, WOULD_CHANGE, Commands
from migration.commands.options import add_repository

if TYPE_CHECKING:
    from migration.ledger.records import UndoRecord
    from migration.ledger.undo import UndoPlan, UndoRefused

_BACK = {"created": "removed", "deleted": "brought back", "changed": "restored"}


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "undo",
        help="take back the last write, byte for byte",
        description="Take back the last write of migrate, byte for byte. Refused when one of its files "
        "changed since. Again: the write before it. The last 20 writes are kept.",
    )
    add_repository(parser)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--list", action="store_true", help="show the writes that can be taken back")
    mode.add_argument("--check", action="store_true", help="write nothing, exit 1 if something would change")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")


def run(arguments: argparse.Namespace) -> int:
    from migration.commands.writing import open_repository
    from migration.ledger.undo import NothingToUndo, UndoPlan, plan_undo, undo

    root = open_repository(arguments)
    if arguments.list:
        return _list(root, as_json=arguments.json)
    plan = plan_undo(root)
    if isinstance(plan, NothingToUndo):
        if arguments.json:
            _print_json({"outcome": "nothing"})
        else:
            print(f"nothing to undo in {root}")
        return DONE
    if not isinstance(plan, UndoPlan):
        _refused(plan, as_json=arguments.json)
        return REFUSED
    if not arguments.check:
        undo(root, plan)
    if arguments.json:
        _print_json({"outcome": "planned" if arguments.check else "undone", "record": _as_json(plan.record)})
    else:
        _undone(root, plan, checked=arguments.check)
    return WOULD_CHANGE if arguments.check else DONE


def _undone(root: Path, plan: UndoPlan, *, checked: bool) -> None:
    from migration.ledger.records import record_folders

    record = plan.record
    print(f"{'would undo' if checked else 'undone'}: {_title(record)}")
    moved = {change.path for change in plan.changes}
    would = "would be " if checked else ""
    for file in record.files:
        done = would + _BACK[file.kind] if file.path in moved else "is already as before"
        print(f"  {file.path}: {done}")
    left = len(record_folders(root)) - checked
    if left:
        print(f"{left} earlier {'write' if left == 1 else 'writes'} can be undone: migrate undo --list")


def _refused(plan: UndoRefused, *, as_json: bool) -> None:
    record = plan.record
    if as_json:
        refusals = [
            {
                "code": refusal.code,
                "path": refusal.where,
                "message": refusal.message,
                "way_out": refusal.way_out,
            }
            for refusal in plan.refusals
        ]
        _print_json({"outcome": "refused", "record": _as_json(record), "refusals": refusals})
        return
    print(f"migrate: nothing was undone, files changed since {_title(record)}", file=sys.stderr)
    for refusal in plan.refusals:
        print(f"  {refusal.code} {refusal.where}: {refusal.message}", file=sys.stderr)
    print(
        "  way out: keep a copy of each edited file, put back what was written or what was before, and run "
        f"again; or keep the edits and give this undo up: delete {record.folder}",
        file=sys.stderr,
    )


def _list(root: Path, *, as_json: bool) -> int:
    from migration.ledger.records import records

    found = records(root)
    if as_json:
        _print_json({"records": [_as_json(record) for record in found]})
    elif not found:
        print(f"nothing to undo in {root}")
    else:
        print("newest first; `migrate undo` takes back the first one:")
        for record in found:
            print(_title(record))
            for file in record.files:
                print(f"  {file.kind} {file.path}")
    return DONE


def _title(record: UndoRecord) -> str:
    return f"{record.name} {record.label}, {record.time[:10]} {record.time[11:19]} UTC"


def _as_json(record: UndoRecord) -> dict[str, Any]:
    files = [
        {"path": file.path, "kind": file.kind, "old": file.old, "new": file.new} for file in record.files
    ]
    return {
        "name": record.name,
        "label": record.label,
        "time": record.time,
        "folder": str(record.folder),
        "files": files,
    }


def _print_json(content: dict[str, Any]) -> None:
    import json

    print(json.dumps({"schema": 1, **content}, indent=2, ensure_ascii=False))
