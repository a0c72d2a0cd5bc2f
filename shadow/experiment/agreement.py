"""All ranks route alike: asked by one collective before anything runs, and again before anything is switched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shadow.experiment.flags import FlagError, Flags, check_names, variables
from shadow.experiment.gate import Gate, live_gates

#: Takes this rank's value; returns those of all ranks, in their order.
Gather = Callable[[Any], list[Any]]
_NO_GATE = "of no gate"
_MOST = 8


class Disagreement(FlagError):
    """A gate's variable differs between ranks."""


def agree(
    gather: Gather,
    gates: Iterable[Gate] | None = None,
    *,
    refused: FlagError | None = None,
    report: str | None = None,
) -> None:
    """Every rank calls it; nothing is gathered where there are no gates.

    Args:
        gates: all of the process if None.
        refused: what was wrong with a variable of this rank already when its gate was made.
        report: where gates are to write that have no `<prefix>_REPORT`; the first rank's holds for all.

    Raises:
        FlagError: on all ranks, where the variables of one mean nothing.
        Disagreement: on all ranks; it names variable, ranks and values.
    """
    mine = live_gates() if gates is None else list(gates)
    if not mine and refused is None:
        return
    fault = str(refused) if refused is not None else _misspelt(mine)
    answers = gather((fault, _settings(mine), report))
    _settle([answer[:2] for answer in answers])
    if (path := answers[0][2]) is not None:
        for gate in mine:
            gate.report_to(path)


def configure_all(flags: Mapping[str, Flags], gather: Gather) -> None:
    """Routes gates by other flags from now on, on all ranks or on none. Every rank calls it.

    Args:
        flags: by the prefixes of the gates; those that are not named stay as they are.

    Raises:
        FlagError: on all ranks, where one asks for a gate or a part that does not exist. Nothing has changed.
        Disagreement: on all ranks, where they ask for different things. Nothing has changed.
    """
    gates = live_gates()
    answers = gather((_impossible(gates, flags), _settings(gates, flags)))
    _settle(answers)
    for gate in gates:
        if gate.prefix in flags:
            gate.configure(flags[gate.prefix])


def _misspelt(gates: Sequence[Gate]) -> str | None:
    try:
        known = {name for gate in gates for name in variables(gate.prefix, gate.parts)}
        check_names({gate.prefix for gate in gates}, known, os.environ)
    except FlagError as error:
        return str(error)
    return None


def _impossible(gates: Sequence[Gate], flags: Mapping[str, Flags]) -> str | None:
    try:
        for prefix in sorted(flags.keys() - {gate.prefix for gate in gates}):
            there = ", ".join(dict.fromkeys(gate.prefix for gate in gates)) or "none"
            raise FlagError(f"there is no gate {prefix}; there are {there}")
        for gate in gates:
            if gate.prefix in flags:
                gate.check(flags[gate.prefix])
    except FlagError as error:
        return str(error)
    return None


def _settings(gates: Iterable[Gate], flags: Mapping[str, Flags] | None = None) -> dict[str, str]:
    asked = flags or {}
    return {name: text for gate in gates for name, text in gate.settings(asked.get(gate.prefix)).items()}


def _settle(answers: Sequence[tuple[str | None, dict[str, str]]]) -> None:
    """The same outcome on every rank, as all have the same answers."""
    faults = _ranks_by(fault for fault, _ in answers)
    for fault, ranks in faults.items():
        if fault is not None:
            raise FlagError(fault if len(faults) == 1 else f"{fault} (on {_named(ranks)} of {len(answers)})")
    said = []
    for name in dict.fromkeys(name for _, settings in answers for name in settings):
        found = _ranks_by(settings.get(name, _NO_GATE) for _, settings in answers)
        if len(found) > 1:
            values = ", ".join(f"{text} on {_named(ranks)}" for text, ranks in found.items())
            said.append(f"{name} differs between ranks: {values}")
    if said:
        raise Disagreement(f"{'; '.join(said)}. Set it alike for all, or ranks part at the next collective")


def _ranks_by(values: Iterable[Any]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for rank, value in enumerate(values):
        found.setdefault(value, []).append(rank)
    return found


def _named(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST])) + (", ..." if len(ranks) > _MOST else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
