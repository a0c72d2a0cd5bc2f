"""Notices the named classes as soon as they exist: when their module was imported, or the script made them."""

from __future__ import annotations

import atexit
import builtins
import difflib
import functools
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .recorder import Recorder
from .subjects import Subject

Found = Callable[[Subject], None]
#: The script that is run, and the name under which multiprocessing imports it in a child.
_SCRIPT = ("__main__", "__mp_main__")


def watch(paths: Sequence[str], found: Found, recorder: Recorder) -> None:
    """Call `found` for every class of `paths` (`pkg.module:Class`) when it has come to be."""
    by_module: dict[str, list[str]] = {}
    for path in paths:
        by_module.setdefault(path.partition(":")[0], []).append(path)
    script = by_module.pop("__main__", [])
    if script:
        _watch_script(script, found)

    seen: set[str] = set()

    def loaded(module: ModuleType) -> None:
        seen.add(module.__name__)
        for path in by_module[module.__name__]:
            kind = _class(module, path.partition(":")[2])
            if isinstance(kind, type):
                found(Subject(path, kind))
            else:
                near = difflib.get_close_matches(path.partition(":")[2], _classes(module), 1)
                hint = f", did you mean {near[0]}?" if near else ""
                recorder.note("problem", f"{module.__name__} has no class {path.partition(':')[2]}{hint}")

    finder = _Finder(set(by_module), loaded)
    for name in finder.modules & sys.modules.keys():
        loaded(sys.modules[name])
    sys.meta_path.insert(0, finder)

    def at_exit() -> None:
        for name in sorted(finder.modules & sys.modules.keys() - seen):
            recorder.note("problem", f"{name} came past the import hook (pytest loads test modules itself)")

    atexit.register(at_exit)


def _class(module: ModuleType, qualname: str) -> Any:
    found: Any = module
    for part in qualname.split("."):
        found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
    return found


def _classes(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, type)]


class _Finder:
    """First on sys.meta_path: lets the others find, and speaks up after the module was executed."""

    def __init__(self, modules: set[str], loaded: Callable[[ModuleType], None]) -> None:
        self.modules = modules
        self._loaded = loaded

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                self._attend(spec)
                return spec
        return None

    def _attend(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):  # built in or frozen: no Python class in there
            return

        @functools.wraps(execute)
        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._loaded(module)

        loader.exec_module = exec_module


def _watch_script(paths: Sequence[str], found: Found) -> None:
    """Classes of the script itself exist long before it ends: seen as its class statements are run."""
    wanted = {path.partition(":")[2]: path for path in paths}
    build = builtins.__build_class__

    @functools.wraps(build)
    def build_class(body: Any, name: str, /, *bases: Any, **keywords: Any) -> Any:
        kind = build(body, name, *bases, **keywords)
        if isinstance(kind, type) and kind.__module__ in _SCRIPT and kind.__qualname__ in wanted:
            found(Subject(wanted[kind.__qualname__], kind))
        return kind

    builtins.__build_class__ = build_class
