"""How a mutant is written, registered and found.

    @mutant("pad-slot-last-page", Fault.STRUCTURAL, Where(Kind.WRITE_SET, "primary.*", step=5))
    @contextmanager
    def pad_slot_writes_last_page(plant: Plant) -> Iterator[None]:
        '''vllm#43810: a padding slot of -1 wraps to the last page.'''
        ...
        yield

`Where` is the declaration, made before any run, of what the first finding must say.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from shadow.observation import Kind

CATALOGUE = "shadow.mutants.catalogue"


class MutantError(RuntimeError):
    """A mutant cannot be found, or not planted in this worker; one line that says what to do."""


class Fault(StrEnum):
    """How soon a fault must be found: within 1 step (structural) or 2 steps (numeric) of its first stroke.

    A control changes nothing that counts: a run with it must not alarm.
    """

    STRUCTURAL = "structural"
    NUMERIC = "numeric"
    CONTROL = "control"


@dataclass(frozen=True)
class Where:
    """Coordinates of the first finding. `field` is an fnmatch pattern; None: any (a layer: none at all).

    `kind` None is for a control, which has no finding.
    """

    kind: Kind | None
    field: str = "*"
    step: int | None = None
    sequence: str | None = None
    layer: int | None = None


@dataclass
class Plant:
    """What a mutant gets: the live worker, and how to say that the fault has struck (`fired`)."""

    worker: Any
    step: Callable[[], int]
    fired: Callable[[], None]
    modules: Mapping[str, Any]  # those of batchgen that are loaded, by name


@dataclass(frozen=True)
class Mutant:
    name: str
    kind: Fault
    where: Where
    plant: Callable[[Plant], AbstractContextManager[None]]
    report: str  # the docstring: which public bug, in one line
    workload: str = "pressure"
    options: Mapping[str, object] = field(default_factory=dict)


_REGISTRY: dict[str, Mutant] = {}
_Planter = Callable[[Plant], AbstractContextManager[None]]


def mutant(
    name: str, kind: Fault, where: Where, *, workload: str = "pressure", **options: object
) -> Callable[[_Planter], _Planter]:
    """Registers a context manager as a mutant. `options` are EngineOptions of both sides.

    ValueError: the name is taken, the docstring is missing, or a fault has no kind to be found by.
    """

    def register(planter: _Planter) -> _Planter:
        report = (planter.__doc__ or "").strip().split("\n")[0]
        if name in _REGISTRY:
            raise ValueError(f"mutant {name!r} is registered twice")
        if not report:
            raise ValueError(f"mutant {name!r} needs a docstring that says which bug it is")
        if (where.kind is None) != (kind is Fault.CONTROL):
            raise ValueError(f"mutant {name!r}: a fault declares where it is found, a control does not")
        _REGISTRY[name] = Mutant(name, kind, where, planter, report, workload, dict(options))
        return planter

    return register


def load(source: str = CATALOGUE) -> dict[str, Mutant]:
    """The mutants that a module, or a Python file, registers, by name. MutantError where it has none."""
    before = set(_REGISTRY)
    if source.endswith(".py"):
        path = Path(source)
        spec = importlib.util.spec_from_file_location(f"mutants_{path.stem}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise MutantError(f"there is no file of mutants {source}")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise MutantError(f"{source} cannot be loaded: {type(error).__name__}: {error}") from error
        found = {name: made for name, made in _REGISTRY.items() if name not in before}
    else:
        importlib.import_module(source)
        found = {name: made for name, made in _REGISTRY.items() if made.plant.__module__.startswith(source)}
    if not found:
        raise MutantError(f"{source} registers no mutant; see shadow.mutants.registry for how to write one")
    return found
