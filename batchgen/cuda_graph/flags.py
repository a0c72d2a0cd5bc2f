"""Debug switches of the static-buffer decode path, from the environment. None of them changes a token."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["ALL_LAYERS", "DecodeGraphFlags", "warn_on_removed"]

logger = logging.getLogger(__name__)

PREFIX = "BATCHGEN_DECODE_GRAPH_"
ALL_LAYERS = (-1,)

_T = TypeVar("_T")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})

# Retired variable -> what to set instead, "" where the feature is gone.
_REMOVED: dict[str, str] = {
    "BATCHGEN_DECODE_GRAPH_ADAPTER_DUAL": "",
    "BATCHGEN_GLM5_LAYER_CUDA_GRAPH": "",
    "BATCHGEN_GLM5_DSA_CUDA_GRAPH": "",
    "BATCHGEN_GLM5_DSA_FULL_CUDA_GRAPH": "",
    "BATCHGEN_GLM5_MOE_CUDA_GRAPH": "",
    "BATCHGEN_SEGMENTED_GRAPH": "",
    "BATCHGEN_GLM5_WHOLE_MODEL_CUDA_GRAPH": "",
    "BATCHGEN_GLM5_WHOLE_MODEL_CUDA_GRAPH_MAX_SEQLEN": PREFIX + "MAX_SEQLEN",
    "BATCHGEN_GLM5_WHOLE_MODEL_GRAPH_COMPARE": PREFIX + "COMPARE",
    "BATCHGEN_GLM5_WHOLE_MODEL_GRAPH_COMPARE_FAIL": PREFIX + "COMPARE_FAIL",
    "BATCHGEN_GLM5_WHOLE_MODEL_GRAPH_COMPARE_ATOL": PREFIX + "COMPARE_ATOL",
    "BATCHGEN_GLM5_WHOLE_MODEL_GRAPH_COMPARE_RTOL": PREFIX + "COMPARE_RTOL",
    "BATCHGEN_GLM5_WHOLE_MODEL_GRAPH_TIMING": PREFIX + "TIMING",
    "BATCHGEN_GLM5_WHOLE_MODEL_GRAPH_PROBE_LAYERS": PREFIX + "PROBE_LAYERS",
}
_warned: set[str] = set()


def warn_on_removed(env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Log one warning per process for each retired variable that is set; returns those set."""
    source = os.environ if env is None else env
    present = tuple(name for name in _REMOVED if name in source)
    for name in present:
        if name not in _warned:
            _warned.add(name)
            instead = f"set {_REMOVED[name]} instead" if _REMOVED[name] else "it has no effect any more"
            logger.warning("environment variable %s was removed: %s", name, instead)
    return present


@dataclass(frozen=True)
class DecodeGraphFlags:
    """compare: run eager beside every replay and report. compare_fail: raise on a difference. timing: time
    replays. probe_layers: layers whose hidden states are compared too ((-1,): all). path_log: log each step's
    path. max_seqlen: lower the captured maximum."""

    compare: bool = False
    compare_fail: bool = False
    compare_atol: float = 1e-2
    compare_rtol: float = 1e-2
    timing: bool = False
    probe_layers: tuple[int, ...] = ()
    path_log: bool = False
    max_seqlen: int | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> DecodeGraphFlags:
        """Parse BATCHGEN_DECODE_GRAPH_*. ValueError names the variable that does not parse."""
        source = os.environ if env is None else env
        warn_on_removed(source)

        def get(name: str, parse: Callable[[str], _T], default: _T) -> _T:
            text = source.get(PREFIX + name)
            if text is None:
                return default
            try:
                return parse(text.strip())
            except ValueError as error:
                raise ValueError(f"{PREFIX}{name}={text!r}: {error}") from None

        return cls(
            compare=get("COMPARE", _bool, False),
            compare_fail=get("COMPARE_FAIL", _bool, False),
            compare_atol=get("COMPARE_ATOL", _tolerance, 1e-2),
            compare_rtol=get("COMPARE_RTOL", _tolerance, 1e-2),
            timing=get("TIMING", _bool, False),
            probe_layers=get("PROBE_LAYERS", _layers, ()),
            path_log=get("PATH_LOG", _bool, False),
            max_seqlen=get("MAX_SEQLEN", _length, None),
        )


def _bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("expected 1 or 0")


def _tolerance(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError("expected a finite number, at least 0")
    return value


def _length(text: str) -> int | None:
    if not text:
        return None
    value = int(text)
    if value < 1:
        raise ValueError("expected a length of at least 1")
    return value


def _layers(text: str) -> tuple[int, ...]:
    if text.lower() == "all":
        return ALL_LAYERS
    layers = tuple(sorted({int(part) for part in text.split(",") if part.strip()}))
    if any(layer < 0 for layer in layers):
        raise ValueError("expected layer numbers from 0, separated by commas, or 'all'")
    return layers
