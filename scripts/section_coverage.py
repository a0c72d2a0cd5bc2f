"""Which lines of two sections of the worker no test ran; fails below the floor.

    coverage run -m pytest ... && coverage combine && python scripts/section_coverage.py

The KV Cache Helper section and the decode section are what the slices take out of the worker: a line there that no
test runs is a line whose move nothing checks. The shadowed first definition of a method that is defined twice can
never run and is left out.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "batchgen" / "batchgen_worker.py"
# section -> (first method, last method), in file order
SECTIONS = {
    "KV Cache Helper Methods": ("_get_sequence_token_budget", "_rebalance_host_kv"),
    "boundary": ("_compute_boundary_decisions", "_finalize_async_load_minimal"),
    "decode": ("_bind_decode_attention_metadata", "_launch_async_load_new_sequences"),
}


def live_methods(source: str) -> list[ast.FunctionDef]:
    """Methods of the worker class in file order, without those that a later definition shadows."""
    tree = ast.parse(source)
    worker = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "BatchGenWorker")
    methods = [n for n in worker.body if isinstance(n, ast.FunctionDef)]
    last = {method.name: method for method in methods}
    return [method for method in methods if last[method.name] is method]


def section_lines(methods: list[ast.FunctionDef], first: str, last: str) -> dict[int, str]:
    """line -> method, for the methods from `first` to `last`."""
    names = [method.name for method in methods]
    chosen = methods[names.index(first) : names.index(last) + 1]
    return {line: m.name for m in chosen for line in range(m.lineno, (m.end_lineno or m.lineno) + 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--floor", type=float, default=95.0, help="least percentage of statements run, per section"
    )
    options = parser.parse_args()
    data = coverage.Coverage()
    data.load()
    _, statements, _, missing, _ = data.analysis2(str(WORKER))
    methods = live_methods(WORKER.read_text(encoding="utf-8"))
    failed = False
    for title, (first, last) in SECTIONS.items():
        lines = section_lines(methods, first, last)
        relevant = [line for line in statements if line in lines]
        missed = [line for line in missing if line in lines]
        percent = 100.0 * (len(relevant) - len(missed)) / len(relevant)
        print(f"{title}: {percent:.1f} % of {len(relevant)} statements ran")
        for line in missed:
            print(f"  {WORKER.relative_to(ROOT)}:{line} in {lines[line]}")
        failed |= percent < options.floor
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
