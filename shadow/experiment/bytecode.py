"""Which names from outside a function uses, read off its bytecode: exact for the running code, unlike its source."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from shadow.experiment.storage import MISSING

_NOISE = frozenset(
    (
        "CACHE",
        "RESUME",
        "NOP",
        "EXTENDED_ARG",
        "PRECALL",
        "PUSH_NULL",
        "COPY_FREE_VARS",
        "MAKE_CELL",
        "NOT_TAKEN",
    )
)
_STORES = frozenset(("STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR"))
_VALUE_USES = frozenset(
    ("CHECK_EXC_MATCH", "BUILD_TUPLE", "IS_OP", "BINARY_OP", "MATCH_CLASS", "RETURN_VALUE")
)


@dataclass(frozen=True)
class Use:
    """One use of a name that the function does not bind itself."""

    name: str
    #: What the name stands for now; MISSING when it is bound nowhere.
    value: Any
    #: Attribute names that follow it.
    chain: tuple[str, ...]
    #: The attribute that is set or deleted on it, or None.
    sets: str | None
    #: Only looked at (isinstance, an except clause, `is`), not called or handed on.
    looked_at: bool
    #: Given a local name, under which it may be changed.
    kept: bool
    #: The class in whose body the function was written, where it asks for it (`super()`, `__class__`).
    defined_in: type | None = None


@dataclass(frozen=True)
class Uses:
    outside: tuple[Use, ...]
    #: Attribute chains looked up on the first parameter.
    of_first: tuple[tuple[str, ...], ...]
    #: Names of module globals that it rebinds.
    rebinds: tuple[str, ...]
    #: Stores into some container by key.
    stores_items: bool
    #: Modules that it would import and that are not loaded.
    unloaded: tuple[str, ...]
    #: Every attribute name in it, and every string that could be one (`getattr(x, "name")`).
    names: frozenset[str]


def uses_of(function: FunctionType) -> Uses:
    """All uses in a function and the functions and comprehensions inside it."""
    cells = {
        name: _content(cell)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    }
    defined_in = cells.pop("__class__", None)
    outside: list[Use] = []
    of_first: list[tuple[str, ...]] = []
    rebinds: list[str] = []
    unloaded: list[str] = []
    names: set[str] = set()
    stores = False
    first = function.__code__.co_varnames[:1] if function.__code__.co_argcount else ()
    for code in _codes(function.__code__):
        steps = [step for step in dis.get_instructions(code) if step.opname not in _NOISE]
        names.update(code.co_names)
        names.update(text for text in code.co_consts if isinstance(text, str) and text.isidentifier())
        local = _local_imports(steps, function.__globals__, unloaded)
        for index, step in enumerate(steps):
            stores = stores or step.opname in _STORES
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                rebinds.append(step.argval)
            name = _loaded(step)
            if name is None:
                continue
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                value = _global(function.__globals__, name)
            elif name in local:
                value = local[name]
            elif name in cells and "DEREF" in step.opname:
                value = cells[name]
            elif first and name == first[0] and index + 1 < len(steps):
                of_first.append(tuple(_chain(steps, index)))
                continue
            else:
                continue
            outside.append(_use(steps, index, name, value, defined_in))
    return Uses(tuple(outside), tuple(of_first), tuple(rebinds), stores, tuple(unloaded), frozenset(names))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _global(namespace: dict[str, Any], name: str) -> Any:
    if name in namespace:
        return namespace[name]
    builtins = namespace.get("__builtins__", {})
    return (builtins if isinstance(builtins, dict) else vars(builtins)).get(name, MISSING)


def _loaded(step: dis.Instruction) -> str | None:
    """The name that ends up on top of the stack."""
    if not step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD")):
        return None
    value = step.argval
    return value[-1] if isinstance(value, tuple) else value


def _chain(steps: list[dis.Instruction], index: int) -> list[str]:
    found = []
    for step in steps[index + 1 :]:
        if step.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        found.append(step.argval)
    return found


def _use(steps: list[dis.Instruction], index: int, name: str, value: Any, defined_in: Any) -> Use:
    chain = _chain(steps, index)
    last, following = steps[index + len(chain)], steps[index + len(chain) + 1 : index + len(chain) + 2]
    after = following[0] if following else None
    sets = after.argval if after is not None and after.opname in ("STORE_ATTR", "DELETE_ATTR") else None
    if after is not None and after.opname == "COPY":  # `name.attribute += 1` keeps the object for the store
        sets = next(iter(_chain(steps, index + len(chain) + 1)), None)
    kept = after is not None and after.opname.startswith(("STORE_FAST", "STORE_DEREF"))
    calls = last.opname == "LOAD_METHOD" or (
        last.opname in ("LOAD_GLOBAL", "LOAD_ATTR")
        and _pushes_null(last, is_global=last.opname == "LOAD_GLOBAL")
    )
    looked_at = (
        not calls
        and after is not None
        and (after.opname in _VALUE_USES or (after.opname == "CALL" and after.arg == 2))
    )
    return Use(name, value, tuple(chain), sets, looked_at, kept, defined_in)


def _pushes_null(step: dis.Instruction, *, is_global: bool) -> bool:
    """The compiler marks a load whose value is called at once."""
    return (is_global or sys.version_info >= (3, 12)) and bool((step.arg or 0) & 1)


def _local_imports(
    steps: list[dis.Instruction], namespace: dict[str, Any], unloaded: list[str]
) -> dict[str, Any]:
    """Local names that import statements of this code bind, with what they stand for."""
    found: dict[str, Any] = {}
    module: Any = None
    for index, step in enumerate(steps):
        after = steps[index + 1] if index + 1 < len(steps) else None
        target = after.argval if after is not None and after.opname.startswith("STORE_") else None
        if isinstance(target, tuple):
            target = target[0]
        if step.opname == "IMPORT_NAME":
            name = _absolute(steps, index, namespace)
            module = sys.modules.get(name)
            if module is None:
                unloaded.append(name)
            if target is not None:
                found[target] = sys.modules.get(name.partition(".")[0])
        elif step.opname == "IMPORT_FROM" and module is not None:
            value = vars(module).get(
                step.argval, sys.modules.get(f"{module.__name__}.{step.argval}", MISSING)
            )
            if target is not None:
                found[target] = value
            elif after is not None and after.opname == "SWAP":  # import a.b as c
                names = (s.argval for s in steps[index + 1 :] if s.opname.startswith("STORE_"))
                stored = next(names, None)
                found[stored[0] if isinstance(stored, tuple) else str(stored)] = value
    return found


def _absolute(steps: list[dis.Instruction], index: int, namespace: dict[str, Any]) -> str:
    """The imported module's full name; a relative one is told by the constant two steps before."""
    level = steps[index - 2].argval if index >= 2 else 0
    name = str(steps[index].argval)
    if not isinstance(level, int) or level <= 0:
        return name
    package = str(namespace.get("__package__") or "").split(".")
    return ".".join([*package[: len(package) - level + 1], *([name] if name else [])])
