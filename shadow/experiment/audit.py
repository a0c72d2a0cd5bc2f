"""Whether a function may run a second time without anybody outside noticing.

A candidate works on copies and stand-ins, so what it does to the worker is contained. What it does to the rest
of the process (a file, a collective, a module's state, a class's state) is not, and is looked for here, in the
bytecode of the function and of every function it names. Anything that is not recognised counts as an effect.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import logging
import re
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from shadow.experiment.arrays import is_tensor
from shadow.experiment.bytecode import Use, uses_of
from shadow.experiment.storage import MISSING, class_dict, is_a, mro, on_class, unhooked
from shadow.experiment.trusted import MUTATORS, VOLATILE, verdict_on

#: Set on functions that stand in for others and look after themselves (see `intercept`).
INTERCEPTED = "__shadow_original__"
#: Set on classes whose objects know when a candidate runs (gates).
INSIDE = "__shadow_inside__"
_MANY = 400
#: Part of a reason that may not hold the next time.
FOR_NOW = "not looked into"
_ATOMS = (bool, int, float, complex, str, bytes, range, type(None), enum.Enum, re.Pattern, logging.Logger)
_CONTAINERS = (dict, list, set, MappingProxyType, tuple, frozenset)
_HARMLESS_TYPES = frozenset(("torch", "numpy", "typing", "types", "builtins"))


class _Effect(Exception):
    """`text` starts with a verb until the function that it happens in is put before it."""

    def __init__(self, text: str, *, located: bool = False) -> None:
        super().__init__(text)
        self.text, self.located = text, located


class Auditor:
    """Remembers its findings.

    Args:
        tape: takes the dotted name of a module's function that must not run twice, or whose answers change from
            call to call, and sees to it that the control's answers are given to the candidate; False: it cannot.
        shared: dotted names of classes whose attributes may be set: they are put back (see `class_state`).
    """

    def __init__(self, tape: Callable[[str], bool] = lambda path: False, shared: Iterable[str] = ()) -> None:
        self._tape, self._shared = tape, frozenset(shared)
        self._left = _MANY
        #: Attribute names that the audited functions use.
        self.names: set[str] = set()
        #: Those among them that are looked up on an attribute of the first parameter: on a handle.
        self.through: set[str] = set()
        self._found: dict[tuple[Any, type | None], str | None] = {}
        #: Classes of which a class method is called: it may make an object, and nobody sees whose methods are called.
        self._made: dict[type, None] = {}

    def function(self, function: Any, owner: type | None = None) -> str | None:
        """Why it cannot run twice, or None. Methods that it calls on its first parameter are those of `owner`."""
        return self._from_outside(lambda: self._function(function, owner))

    def cls(self, cls: type) -> str | None:
        """Why instances of a class may do something that cannot be done twice, or None."""
        return self._from_outside(lambda: self._class(cls))

    def _caught(self, look: Callable[[], None]) -> str | None:
        try:
            look()
        except _Effect as effect:
            return effect.text
        return None

    def _from_outside(self, look: Callable[[], None]) -> str | None:
        self._left = _MANY
        reason = self._caught(look)
        return self._caught(self._objects_made) if reason is None else reason

    def _objects_made(self) -> None:
        """Of what class methods may have made, the methods that any audited function knows the name of."""
        looked_at: set[tuple[type, str]] = set()
        while True:
            known = {
                (cls, name): function
                for cls in self._made
                for klass in mro(cls)
                if not verdict_on(f"{klass.__module__}.{klass.__qualname__}")
                for name, function in written_in(klass).items()
                if name.partition("#")[0] in self.names
            }
            if known.keys() <= looked_at:
                return
            for (cls, name), function in known.items():
                looked_at.add((cls, name))
                self._function(function, cls)

    def _function(self, function: Any, owner: type | None = None) -> None:
        while True:
            if is_a(function, MethodType | staticmethod | classmethod):
                function = function.__func__
            elif (behind := unhooked(function)) is not function:
                function = behind
            else:
                break
        if not is_a(function, FunctionType):
            self._c_function(function)
            return
        if "__wrapped__" in vars(function) and INTERCEPTED not in vars(function):
            self._function(vars(function)["__wrapped__"], owner)
        listed = verdict_on(f"{function.__module__}.{function.__qualname__}")
        if listed or INTERCEPTED in vars(function):
            return
        key = (function.__code__, owner)
        if key not in self._found:
            self._left -= 1
            if self._left < 0:
                raise _Effect(f"calls more than {_MANY} functions: {FOR_NOW}", located=True)
            self._found[key] = None  # a cycle adds nothing
            self._found[key] = self._caught(lambda: self._body(function, owner))
        reason = self._found[key]
        if reason is not None:
            if FOR_NOW in reason:
                del self._found[key]
            raise _Effect(reason, located=True)

    def _class(self, cls: type) -> None:
        for klass in mro(cls):
            name = f"{klass.__module__}.{klass.__qualname__}"
            if verdict_on(name):
                continue
            if not klass.__flags__ & (1 << 9):  # not made by a class statement
                raise _Effect(f"uses {name}")
            for function in written_in(klass).values():
                self._function(function, cls)
            for field in class_dict(klass).get("__dataclass_fields__", {}).values():
                if field.default_factory is not dataclasses.MISSING:
                    self._value(field.default_factory, "a default factory", [], looked_at=False, stores=False)

    def _body(self, function: FunctionType, owner: type | None) -> None:
        uses = uses_of(function)
        self.names |= uses.names
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        try:
            if any(is_a(default, list | dict | set | bytearray) for default in defaults):
                raise _Effect("has a default that both runs would share and may change")
            if uses.rebinds:
                raise _Effect(f"rebinds the module global {uses.rebinds[0]}")
            if uses.unloaded:
                raise _Effect(f"imports {uses.unloaded[0]}, which is not loaded: {FOR_NOW}")
            for use in uses.outside:
                self._use(use, uses.stores_items)
            for name, *further in dict.fromkeys(chain for chain in uses.of_first if chain):
                found = on_class(owner, name) if owner is not None else None
                for method in accessors(found[1]) if found else ():
                    self._function(method, owner)
                if found is None and further:
                    self.through.add(further[0])
        except _Effect as effect:
            text = effect.text if effect.located else f"{function.__qualname__} {effect.text}"
            raise _Effect(text, located=True) from None

    def _use(self, use: Use, stores: bool) -> None:
        value, chain, path = use.value, list(use.chain), use.name
        if value is super:
            if use.defined_in is None:
                raise _Effect("calls super()")
            for base in mro(use.defined_in)[1:]:
                self._class(base)
            return
        if is_a(value, ModuleType):
            path = value.__name__
            while chain and is_a(value, ModuleType):
                path = f"{value.__name__}.{chain[0]}"
                value = vars(value).get(chain.pop(0), MISSING)
            if is_a(value, ModuleType):
                raise _Effect(f"sets {path}.{use.sets}" if use.sets else f"hands on the module {path}")
            if use.sets is None and self._module_function(value, path):
                return
        elif value is print:
            if not self._tape("builtins.print"):
                raise _Effect("calls print")
            return
        elif value is MISSING:
            return  # bound nowhere: a NameError, on both sides
        elif is_a(value, type):
            path = f"{value.__module__}.{value.__qualname__}"
        if use.sets is not None:
            if path in self._shared and not chain:
                return
            raise _Effect(f"sets {'.'.join((path, *chain))}.{use.sets}")
        if self._may_change(use, path):
            raise _Effect(f"gives {path} another name")
        self._value(value, path, chain, looked_at=use.looked_at, stores=stores)

    def _module_function(self, value: Any, path: str) -> bool:
        """Whether `path`, looked up in its module at each call, is a function that may be called."""
        if value is MISSING:
            raise _Effect(f"uses {path}")
        if not callable(value) or is_a(value, type):
            return False
        listed = verdict_on(path)
        if path not in VOLATILE and (
            listed or (listed is None and self._caught(lambda: self._function(value)) is None)
        ):
            return True
        if not self._tape(path):
            raise _Effect(f"calls {path}")
        return True

    def _may_change(self, use: Use, path: str) -> bool:
        """A class that goes by a local name, whose attributes might be set under it."""
        return use.kept and not use.chain and is_a(use.value, type) and verdict_on(path) is None

    def _value(self, value: Any, path: str, chain: list[str], *, looked_at: bool, stores: bool) -> None:
        if is_a(value, FunctionType | MethodType | staticmethod | classmethod | BuiltinFunctionType):
            self._function(value)
        elif is_a(value, type):
            self._class_use(value, path, chain, looked_at=looked_at, stores=stores)
        elif is_a(value, _CONTAINERS):
            changed = stores or bool(chain and chain[0] in MUTATORS)
            if changed and not is_a(value, tuple | frozenset | MappingProxyType):
                raise _Effect(f"may write the module-level {path}")
            for item in [*(value.values() if is_a(value, dict | MappingProxyType) else value)][:100]:
                self._value(item, path, [], looked_at=False, stores=False)
        elif path == "os.environ":
            if stores or (chain and chain[0] in MUTATORS):
                raise _Effect("may write os.environ")
        elif INSIDE in vars(type(value)):
            return
        elif is_tensor(value):
            if stores or (chain and chain[0].endswith("_")):
                raise _Effect(f"may write the module-level {path}")
        elif _is_frozen(value):
            self._class(type(value))
        elif not _is_harmless(value):
            raise _Effect(f"uses the outer object {path} ({type(value).__name__})")

    def _class_use(self, value: type, path: str, chain: list[str], *, looked_at: bool, stores: bool) -> None:
        if verdict_on(path) or (looked_at and not chain):
            return
        found = on_class(value, chain[0]) if chain else None
        if found is not None and is_a(found[1], staticmethod | classmethod | FunctionType):
            self._function(found[1], value)
            if is_a(found[1], classmethod) and path not in self._shared:
                self._made[value] = None
        elif found is not None and path not in self._shared:
            self._value(found[1], f"{path}.{chain[0]}", chain[1:], looked_at=False, stores=stores)
        elif not chain:
            self._class(value)

    def _c_function(self, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None)
        if module is None and is_a(owner, type):
            module = owner.__module__
        name = getattr(function, "__name__", type(function).__name__)
        if not verdict_on(f"{module}.{name}"):
            raise _Effect(f"calls {name if vars(builtins).get(name) is function else f'{module}.{name}'}")


def _is_harmless(value: Any) -> bool:
    return is_a(value, _ATOMS) or type(value).__module__.partition(".")[0] in _HARMLESS_TYPES


def _is_frozen(value: Any) -> bool:
    declared = on_class(type(value), "__dataclass_params__")
    return declared is not None and bool(declared[1].frozen)


def _is_generated(cls: type, name: str, value: Any) -> bool:
    """Written by `dataclass`."""
    if "__dataclass_params__" not in class_dict(cls):
        return False
    code = getattr(value, "__code__", None)
    return getattr(code, "co_filename", "") == "<string>" or (
        name == "__repr__" and hasattr(value, "__wrapped__")
    )


def written_in(cls: type) -> dict[str, Any]:
    """Functions and accessors that the class's own body defines, those made by `dataclass` left out."""
    found: dict[str, Any] = {}
    for name, value in class_dict(cls).items():
        if not _is_generated(cls, name, value):
            found |= {
                name if index == 0 else f"{name}#{index}": f for index, f in enumerate(accessors(value))
            }
    return found


def accessors(value: Any) -> Iterable[Any]:
    """The functions behind one entry of a class namespace."""
    if is_a(value, property):
        return [part for part in (value.fget, value.fset, value.fdel) if part is not None]
    return [value] if is_a(value, FunctionType | staticmethod | classmethod) else []
