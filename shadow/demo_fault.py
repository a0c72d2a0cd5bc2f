"""Plants one fault in a scratch copy of a worker, to show that `shadow compare` finds it.

`python -m shadow.demo_fault TREE` edits the method that loads KV, in the handler or, where the handler has none, in the
worker, so that one load from the host leaves out the last page of the longest sequence: what an off-by-one in a page
count does. Anchored on names; a tree in which they are not found is refused and left as it is.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Sequence
from pathlib import Path

#: Where the method may be, the first that has it.
FILES = (Path("batchgen/worker/kv_manager.py"), Path("batchgen/batchgen_worker.py"))
METHOD = "load_host_kv_to_gpu"
CALL = "async_load_layer_paged_kv_to_device"
ARGUMENT = "active_page_counts"
_MARK = "_one_page_short"

_FAULT = '''

{calls} = 0


def {mark}(counts):
    """Planted by shadow.demo_fault: load {number} leaves out the last page of the longest sequence."""
    global {calls}
    if int(counts.max()) < 2:
        return counts
    {calls} += 1
    if {calls} != {number}:
        return counts
    counts = counts.clone()
    counts[int(counts.argmax())] -= 1
    return counts
'''


class FaultError(RuntimeError):
    """The fault cannot be planted here; nothing was changed."""


def _loading(source: str) -> list[ast.FunctionDef]:
    """Methods of that name; what only declares it, in a Protocol, is none."""
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name.lstrip("_") == METHOD and len(node.body) > 1
    ]


def _counts_argument(source: str) -> ast.expr:
    """The page counts that the load hands to the host pool."""
    methods = _loading(source)
    if len(methods) != 1:
        raise FaultError(f"{len(methods)} methods are named {METHOD}; the fault goes into exactly one")
    calls = [
        node
        for node in ast.walk(methods[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == CALL
    ]
    if len(calls) != 1:
        raise FaultError(f"{METHOD} calls {CALL} {len(calls)} times; the fault needs one call")
    for keyword in calls[0].keywords:
        if keyword.arg == ARGUMENT:
            return keyword.value
    if len(calls[0].args) < 2:
        raise FaultError(f"the call of {CALL} has no argument {ARGUMENT}")
    return calls[0].args[1]


def _offset(source: bytes, line: int, column: int) -> int:
    lines = source.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + column


def planted(source: str, number: int = 1) -> str:
    """The source with the fault: the `number`-th load of two pages or more is one page short."""
    if _MARK in source:
        raise FaultError("the fault is there already")
    argument = _counts_argument(source)
    assert argument.end_lineno is not None and argument.end_col_offset is not None
    data = source.encode()
    start = _offset(data, argument.lineno, argument.col_offset)
    end = _offset(data, argument.end_lineno, argument.end_col_offset)
    wrapped = b"".join((data[:start], f"{_MARK}(".encode(), data[start:end], b")", data[end:]))
    fault = _FAULT.format(mark=_MARK, calls="_planted_loads", number=number)
    return wrapped.decode().rstrip("\n") + "\n" + fault


def plant(tree: Path, number: int = 1) -> Path:
    """Edits `tree` and returns the file changed. FaultError, with nothing changed, where that cannot be."""
    for path in (tree / file for file in FILES):
        if path.is_file() and _loading(source := path.read_text()):
            try:
                path.write_text(planted(source, number))
            except FaultError as error:
                raise FaultError(f"{path}: {error}") from None
            return path
    places = " nor ".join(map(str, FILES))
    raise FaultError(f"{tree} has no method {METHOD}, neither in {places}: give a copy of the engine")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="shadow.demo_fault", description=__doc__)
    parser.add_argument("tree", type=Path, help="scratch copy of the engine; it is edited")
    parser.add_argument("--load", type=int, default=1, metavar="N", help="which load of two pages or more")
    arguments = parser.parse_args(argv)
    try:
        path = plant(arguments.tree, arguments.load)
    except FaultError as error:
        print(f"shadow.demo_fault: {error}", file=sys.stderr)
        return 2
    print(
        f"{path}: load {arguments.load} of two pages or more is now one page short for its longest sequence"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
