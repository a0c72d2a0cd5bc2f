"""What a workload is, and how large it is asked to be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shadow.workloads.requests import Batch


class WorkloadError(ValueError):
    """There is no such workload, or it cannot run here; one line that says what can be done."""


@dataclass(frozen=True)
class Scale:
    """Caps and prompt counts are divided by these, rounded down to 1 at least."""

    caps: int = 1
    prompts: int = 1

    @classmethod
    def parse(cls, text: str) -> Scale:
        """`caps/16,prompts/4`, either part alone, or `1`. ValueError says what is understood."""
        found: dict[str, int] = {}
        for part in text.split(",") if text != "1" else ():
            match = re.fullmatch(r"(caps|prompts)/([1-9][0-9]*)", part.strip())
            if match is None or match[1] in found:
                raise ValueError(f"{text!r} is not a scale such as caps/16,prompts/4")
            found[match[1]] = int(match[2])
        return cls(**found)

    def cap(self, cap: int) -> int:
        return max(1, cap // self.caps)

    def count(self, prompts: int) -> int:
        return max(1, prompts // self.prompts)

    def __str__(self) -> str:
        parts = [f"{name}/{by}" for name, by in (("caps", self.caps), ("prompts", self.prompts)) if by > 1]
        return ", ".join(parts) or "1 (full size)"


FULL = Scale()


@dataclass(frozen=True)
class Workload:
    """Batches that are run back to back on one live worker.

    `options` and `environment` are what it needs of the engine, unless the user says otherwise. `required`
    names the situations (shadow.workloads.coverage) that it must reach; `to_the_cap`: at least 90 % of the
    rows must.
    """

    name: str
    batches: tuple[Batch, ...]
    options: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    to_the_cap: bool = False
    scale: Scale = FULL

    @property
    def context(self) -> int:
        return max(batch.context for batch in self.batches)


def back_to_back(workloads: Sequence[Workload]) -> Workload:
    """Several as one: all their batches on the same worker. ValueError where they want different engines."""
    first = workloads[0]
    options: dict[str, object] = {}
    environment: dict[str, str] = {}
    for workload in workloads:
        for name, wanted in {**workload.options, **workload.environment}.items():
            if {**options, **environment}.get(name, wanted) != wanted:
                raise WorkloadError(
                    f"{first.name} and {workload.name} want different {name}: run them one by one"
                )
        options.update(workload.options)
        environment.update(workload.environment)
    return replace(
        first,
        name=",".join(workload.name for workload in workloads),
        batches=tuple(batch for workload in workloads for batch in workload.batches),
        options=options,
        environment=environment,
        required=frozenset().union(*(workload.required for workload in workloads)),
        to_the_cap=any(workload.to_the_cap for workload in workloads),
    )
