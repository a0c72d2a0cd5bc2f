"""The environment variables of one gate, read and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

_OFF = ("", "0", "off", "false", "no")
_ON = ("1", "on", "true", "yes")


class FlagError(ValueError):
    """A gate's environment variable has a value that means nothing, or two of them contradict each other."""


@dataclass(frozen=True)
class Flags:
    """How a gate routes. Equal on all ranks of a job, or ranks part at the first collective in a gated method."""

    #: The handler only.
    native: bool = False
    #: The legacy body decides, the handler is run beside it and compared.
    compare: bool = False
    #: Share of the sequences that are compared, 0 to 1.
    rate: float = 1.0
    #: Time for comparing as a fraction of the time of the gated methods themselves; None: no limit.
    budget: float | None = None
    #: Seconds that the handler may take before it is broken off, or five times the legacy body's if that is more.
    timeout: float = 10.0
    #: File to which divergences are appended, one JSON value a line.
    report: str | None = None
    #: Count which branches of the legacy body compared calls take; costs time until each was taken.
    branches: bool = False

    @classmethod
    def from_env(cls, prefix: str, env: Mapping[str, str] | None = None) -> Flags:
        """Reads `<prefix>_NATIVE`, `_COMPARE`, `_BUDGET`, `_TIMEOUT`, `_REPORT` and `_BRANCHES`.

        `_COMPARE` is on, off, or the share of sequences to compare ("0.05" or "5%").

        Raises:
            FlagError: a value is none of those that are allowed, or both NATIVE and COMPARE are set.
        """
        source = os.environ if env is None else env
        native = _switch(source, f"{prefix}_NATIVE")
        rate = _share(source, f"{prefix}_COMPARE")
        if native and rate:
            raise FlagError(
                f"{prefix}_NATIVE and {prefix}_COMPARE are both set: NATIVE runs the handler alone, COMPARE runs "
                "both and serves the legacy result; unset one of them"
            )
        return cls(
            native=native,
            compare=rate > 0,
            rate=rate or 1.0,
            budget=_number(source, f"{prefix}_BUDGET", "a fraction of the control's time, such as 0.05"),
            timeout=_number(source, f"{prefix}_TIMEOUT", "seconds") or cls.timeout,
            report=source.get(f"{prefix}_REPORT") or None,
            branches=_switch(source, f"{prefix}_BRANCHES"),
        )


def _switch(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "").strip().lower()
    if text in _ON or text in _OFF:
        return text in _ON
    raise FlagError(f"{name}={env[name]!r} is neither on ({', '.join(_ON)}) nor off ({', '.join(_OFF[1:])})")


def _share(env: Mapping[str, str], name: str) -> float:
    text = env.get(name, "").strip().lower()
    if text in _OFF:
        return 0.0
    if text in _ON:
        return 1.0
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if 0 < share <= 1:
        return share
    raise FlagError(
        f"{name}={env[name]!r} is neither on ({', '.join(_ON)}), off ({', '.join(_OFF[1:])}) nor a share of the "
        "sequences such as 0.05 or 5%"
    )


def _number(env: Mapping[str, str], name: str, unit: str) -> float | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0 < value < float("inf"):
        return value
    raise FlagError(f"{name}={text!r} is not a positive number ({unit})")
