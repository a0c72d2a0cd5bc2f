"""How each pairing class is made from one setup, and by which rules its sides are compared."""

from __future__ import annotations

from dataclasses import replace

from shadow.messages import Setup
from shadow.noise.bound import Class
from shadow.observation import Kind
from shadow.pairing import PAIRINGS, SAME, Pairing

MEASURABLE = (Class.SAME, Class.BATCH_ORDER, Class.BUCKET, Class.THREADS, Class.DTYPE)
"""Those that options of one engine make. Splits and backends need two of them, which a CPU does not have."""
_NUMERIC = frozenset((Kind.LOGITS, Kind.TOKENS, Kind.KV, Kind.HOST_KV, Kind.STATE, Kind.LAYER))


def varied(control: Setup, pairing: Class, run: int = 0) -> Setup:
    """The candidate that differs from `control` in this and nothing else; `run` numbers the repetitions.

    ValueError for a class that one engine cannot make: its sides are given by hand.
    """
    match pairing:
        case Class.SAME:
            return control
        case Class.BATCH_ORDER:
            return replace(control, order=run)
        case Class.BUCKET:
            return _with(control, "cuda_graphs", not control.options.get("cuda_graphs", True))
        case Class.THREADS:
            return replace(control, threads=2 * control.threads)
        case Class.DTYPE:
            other = "bfloat16" if control.options.get("dtype", "float32") == "float32" else "float32"
            return _with(control, "dtype", other)
    raise ValueError(f"class {pairing.value} takes two engines: compare trees that differ in it")


def observed(control: Setup, pairing: Class) -> Setup:
    """`control` with KV content shown as numbers where the class lets bits differ: digests have no score."""
    return control if pairing is Class.SAME else replace(control, numeric=True)


def rules(pairing: Class) -> Pairing:
    """What is compared exactly in this class; numbers are always compared, bounds decide about them."""
    found = PAIRINGS.get(pairing.value, SAME)
    return replace(found, ignored_kinds=found.ignored_kinds - _NUMERIC)


def _with(setup: Setup, name: str, value: object) -> Setup:
    return replace(setup, options={**setup.options, name: value})
