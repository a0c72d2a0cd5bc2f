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
import traceback
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
    pairing: str = "same"
    source: str = ""  # the module or file that registered it


_REGISTRY: dict[str, Mutant] = {}
_loading = ""  # the file whose mutants are being registered
_Planter = Callable[[Plant], AbstractContextManager[None]]


def mutant(
    name: str,
    kind: Fault,
    where: Where,
    *,
    workload: str = "pressure",
    pairing: str = "same",
    **options: object,
) -> Callable[[_Planter], _Planter]:
    """Registers a context manager as a mutant.

    `workload` is what it runs on (shadow.mutants.workload), `options` are EngineOptions of both sides on top
    of it, `pairing` names what may differ between the sides besides (shadow.pairing).

    ValueError: the name is taken, the docstring is missing, or a fault has no kind to be found by.
    """

    def register(planter: _Planter) -> _Planter:
        report = (planter.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")
        if name in _REGISTRY:
            raise ValueError(f"mutant {name!r} is registered twice")
        if not report:
            raise ValueError(f"mutant {name!r} needs a docstring that says which bug it is")
        if (where.kind is None) != (kind is Fault.CONTROL):
            raise ValueError(f"mutant {name!r}: a fault declares where it is found, a control does not")
        source = _loading or planter.__module__
        _REGISTRY[name] = Mutant(name, kind, where, planter, report, workload, dict(options), pairing, source)
        return planter

    return register


def load(source: str = CATALOGUE) -> dict[str, Mutant]:
    """The mutants that a module, or a Python file, registers, by name. MutantError where it has none."""
    found = _load_file(Path(source)) if source.endswith(".py") else _load_module(source)
    if not found:
        raise MutantError(f"{source} registers no mutant; see docs/mutants.md for how to write one")
    return found


def _load_module(name: str) -> dict[str, Mutant]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise MutantError(f"there is no module of mutants {name}: {error}") from error
    return {key: made for key, made in _REGISTRY.items() if made.source.startswith(name)}


def _load_file(path: Path) -> dict[str, Mutant]:
    """Runs the file anew each time: what it registered before goes first."""
    global _loading
    spec = importlib.util.spec_from_file_location(f"mutants_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise MutantError(f"there is no file of mutants {path}")
    source = str(path.resolve())
    for name in [name for name, made in _REGISTRY.items() if made.source == source]:
        del _REGISTRY[name]
    module = importlib.util.module_from_spec(spec)
    _loading = source
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise MutantError(f"{path} cannot be loaded: {_said(error, path)}") from error
    finally:
        _loading = ""
    return {name: made for name, made in _REGISTRY.items() if made.source == source}


def _said(error: Exception, path: Path) -> str:
    """The error, with the line of the file that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
    if isinstance(error, SyntaxError):
        line = error.lineno
    at = "" if line is None else f"line {line}: "
    return f"{at}{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
