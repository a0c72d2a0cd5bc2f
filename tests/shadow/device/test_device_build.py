"""The kernels built for devices that are not here, by Triton's own compiler and assembler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_CODE = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from shadow.device import kernel
from shadow.device.launch import REGISTERS, TILE, WARPS

architecture, tile = int(sys.argv[1]), json.loads(sys.argv[2])
bits = "*i32" if tile["KIND"] == "float32" else "*i16"
one = {name: 1 for name in tile.pop("ones")}
constants = {**tile, **one, "ROWS": TILE // tile["COLUMNS"]}
kinds = dict(control=bits, candidate=bits, ring="*i32", counter="*i64")
kinds |= dict.fromkeys(("rows", "length", "slots", "tiles"), "i32")
signature = {**kinds, **dict.fromkeys(constants, "constexpr")}
target = GPUTarget("cuda", architecture, 32)
options = {"num_warps": WARPS, "maxnreg": REGISTERS}
built = triton.compile(ASTSource(kernel.compare_tile, signature, constants), target=target, options=options)
kinds = dict(counter="*i64", steps="*i64", slots="i32")
counting = triton.compile(ASTSource(kernel.next_step, kinds, {}), target=target, options={"num_warps": 1})
print(json.dumps({"ptx": built.asm["ptx"], "sizes": [len(one.asm["cubin"]) for one in (built, counting)]}))
"""


@pytest.mark.parametrize(
    ("architecture", "kind", "columns", "ones"),
    [
        (90, "float32", 2048, []),
        (80, "bfloat16", 128, ["tiles"]),
        (100, "float16", 2048, ["rows", "slots"]),
    ],
)
def test_the_kernel_builds_and_keeps_subnormal_errors(
    tmp_path: Path, architecture: int, kind: str, columns: int, ones: list[str]
) -> None:
    """`ones`: arguments of which Triton makes constants."""
    tile = json.dumps({"KIND": kind, "COLUMNS": columns, "ones": ones})
    environment = {name: text for name, text in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", _CODE, str(architecture), tile],
        capture_output=True,
        text=True,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    built = json.loads(done.stdout)
    assert all(built["sizes"])
    assert "sub.f32" in built["ptx"] or "sub.rn.f32" in built["ptx"]
    assert "ftz" not in built["ptx"], "errors below 1e-38 would vanish"
