"""The environment variables of one gate, read and checked."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

_OFF = ("", "0", "off", "false", "no")
_ON = ("1", "on", "true", "yes")
_ROUTE = ("NATIVE", "COMPARE")
_OPTIONS = ("BUDGET", "TIMEOUT", "REPORT", "BRANCHES")
#: The text of a variable that is not set.
UNSET = "unset"


class FlagError(ValueError):
    """A gate's environment variable has a value that means nothing, or two of them contradict each other."""


@dataclass(frozen=True)
class Route:
    """Which body a call runs; the legacy one alone where neither is set."""

    #: The handler only.
    native: bool = False
    #: The legacy body decides, the handler is run beside it and compared.
    compare: bool = False
    #: Share of the sequences that are compared, 0 to 1.
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.native and self.compare:
            raise FlagError("native and compare exclude each other")

    @property
    def on(self) -> bool:
        return self.native or self.compare

    def settings(self, prefix: str) -> Iterator[tuple[str, str]]:
        yield f"{prefix}_NATIVE", str(int(self.native))
        yield f"{prefix}_COMPARE", _text(self.rate) if self.compare else "0"


@dataclass(frozen=True)
class Flags(Route):
    """How a gate routes. Equal on all ranks of a job, or ranks part at the first collective in a gated method."""

    #: Time for comparing as a fraction of the time of the gated methods themselves; None: no limit.
    budget: float | None = None
    #: Seconds that the handler may take before it is broken off, or five times the legacy body's if that is more.
    timeout: float = 10.0
    #: File to which divergences are appended, one JSON value a line.
    report: str | None = None
    #: Count which branches of the legacy body compared calls take; costs time until each was taken.
    branches: bool = False
    #: Parts of the gate that have a route of their own; the others take the gate's.
    parts: tuple[tuple[str, Route], ...] = ()

    @classmethod
    def from_env(
        cls, prefix: str, env: Mapping[str, str] | None = None, parts: Collection[str] = ()
    ) -> Flags:
        """Reads `<prefix>_NATIVE`, `_COMPARE`, `_BUDGET`, `_TIMEOUT`, `_REPORT` and `_BRANCHES`.

        `_COMPARE` is on, off, or the share of sequences to compare ("0.05" or "5%"). Of each part,
        `<prefix>_<part>_NATIVE` and `_COMPARE` are read: where one of the two is set, both decide for the part.

        Raises:
            FlagError: a value is none of those that are allowed, or both NATIVE and COMPARE are set.
        """
        source = os.environ if env is None else env
        route = _route(source, prefix)
        return cls(
            native=route.native,
            compare=route.compare,
            rate=route.rate,
            parts=tuple(
                (part, _route(source, f"{prefix}_{part}"))
                for part in parts
                if any(source.get(f"{prefix}_{part}_{word}", "").strip() for word in _ROUTE)
            ),
            budget=_number(source, f"{prefix}_BUDGET", "a fraction of the control's time, such as 0.05"),
            timeout=_number(source, f"{prefix}_TIMEOUT", "seconds") or cls.timeout,
            report=source.get(f"{prefix}_REPORT") or None,
            branches=_switch(source, f"{prefix}_BRANCHES"),
        )

    @property
    def any_on(self) -> bool:
        """Whether anything but the legacy body is to run for some method."""
        return self.on or any(route.on for _, route in self.parts)

    @property
    def compares(self) -> bool:
        """Whether any method is compared."""
        return self.compare or any(route.compare for _, route in self.parts)

    def settings(self, prefix: str, parts: Collection[str] = ()) -> Iterator[tuple[str, str]]:
        """What must be equal on all ranks, as variables and their texts. A report is a rank's own affair."""
        yield from super().settings(prefix)
        own = dict(self.parts)
        for part in parts:
            name = f"{prefix}_{part}"
            yield from own[part].settings(name) if part in own else ((f"{name}_{w}", UNSET) for w in _ROUTE)
        yield f"{prefix}_BUDGET", UNSET if self.budget is None else _text(self.budget)
        yield f"{prefix}_TIMEOUT", _text(self.timeout)
        yield f"{prefix}_BRANCHES", str(int(self.branches))


def variables(prefix: str, parts: Collection[str]) -> Iterator[str]:
    """Every variable that a gate reads."""
    yield from (f"{prefix}_{word}" for word in (*_ROUTE, *_OPTIONS))
    yield from (f"{prefix}_{part}_{word}" for part in parts for word in _ROUTE)


def check_names(prefixes: Collection[str], known: Collection[str], env: Mapping[str, str]) -> None:
    """Refuses variables that begin like those of some gate and that no gate reads.

    Raises:
        FlagError: it names the variable and what was meant, or what there is.
    """
    for name in sorted(env):
        prefix = max((p for p in prefixes if name.startswith(f"{p}_")), key=len, default=None)
        if prefix is None or name in known or not env[name].strip():
            continue
        from difflib import get_close_matches

        near = get_close_matches(name, sorted(known), 1, 0.85)
        right = sorted(k for k in known if k.startswith(f"{prefix}_"))
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(right)}"
        raise FlagError(f"{name} is no variable of a gate; {hint}")


def _text(number: float) -> str:
    return repr(float(number)).removesuffix(".0")


def _route(env: Mapping[str, str], prefix: str) -> Route:
    native = _switch(env, f"{prefix}_NATIVE")
    rate = _share(env, f"{prefix}_COMPARE")
    if native and rate:
        raise FlagError(
            f"{prefix}_NATIVE and {prefix}_COMPARE are both set: NATIVE runs the handler alone, COMPARE runs "
            "both and serves the legacy result; unset one of them"
        )
    return Route(native, rate > 0, rate or 1.0)


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
