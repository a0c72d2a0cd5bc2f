"""Where proof files are, and which part of a port the last one was."""

from __future__ import annotations

import json

from migration.code.tree import Tree

FOLDER = ".migrate"
SUFFIX = ".proof.json"


def proof_path(slice_name: str) -> str:
    return f"{FOLDER}/{slice_name}{SUFFIX}"


def last_part(slice_name: str, tree: Tree) -> str:
    """The letter that the slice's proof file gives to the part of its port; "" where it has none, or cannot be read."""
    data = tree.read(proof_path(slice_name))
    try:
        value = json.loads(data) if data is not None else {}
    except ValueError:
        return ""
    part = value.get("part", "") if isinstance(value, dict) else ""
    return part if isinstance(part, str) else ""
