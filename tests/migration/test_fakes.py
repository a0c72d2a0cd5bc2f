"""Strict fakes have a Protocol's members and nothing else; `assert_conforms` judges fake and real object alike."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pytest

from migration.code.source import Source
from migration.errors import MigrationError
from migration.move.fake_support import NOT_GIVEN, Call, NotGiven, answer, assert_conforms, calls_of, give
from migration.move.fakes import fake_text
from migration.move.protocol_classes import ProtocolModule

from .golden_cases import GOLDEN, recipe_of

HANDLER = '''
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections import OrderedDict


class Base(Protocol):
    rank: int


class View(Base, Protocol):
    """What the section needs."""

    pool: dict[str, int] | None
    order: OrderedDict[str, int]

    @property
    def size(self) -> int: ...

    def grow(self, n: int, /, by: int = ..., *rest: int, tight: bool, deep: bool = ..., **more: Any) -> list[int]: ...

    async def load(self, uuid: str) -> int: ...

    def drop(self, uuid: str) -> None: ...


class Nothing(Protocol):
    """No member at all."""


class Manager:
    def __init__(self, *, view: View) -> None:
        self._view = view

    def work(self) -> int:
        self._view.pool = {"a": self._view.size}
        return len(self._view.grow(1, tight=True))
'''


def text_of(handler: str, module: str = "app.handler") -> str:
    protocols = ProtocolModule(Source("app/handler.py", handler.encode()), module)
    return fake_text(protocols, lambda top: top == "app")


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The fakes and the handler module as somebody's tests would import them."""
    root = tmp_path_factory.mktemp("fakes")
    (root / "app_of_fakes").mkdir()
    (root / "app_of_fakes/__init__.py").touch()
    (root / "app_of_fakes/handler.py").write_text(HANDLER)
    (root / "generated_fakes.py").write_text(text_of(HANDLER, "app_of_fakes.handler"))
    sys.path.insert(0, str(root))
    yield importlib.import_module("generated_fakes"), importlib.import_module("app_of_fakes.handler")
    sys.path.remove(str(root))
    for name in ("generated_fakes", "app_of_fakes.handler", "app_of_fakes"):
        del sys.modules[name]


def test_the_module_needs_nothing_of_migrate(fakes: tuple[ModuleType, ModuleType]):
    assert "migration" not in Path(str(fakes[0].__file__)).read_text()


def test_a_handler_runs_on_its_fake(fakes: tuple[ModuleType, ModuleType]):
    module, handler = fakes
    view = module.FakeView(size=3, grow=lambda n, *, tight: [n] * 4)
    assert handler.Manager(view=view).work() == 4
    assert view.pool == {"a": 3} and module.calls_of(view) == [("grow", (1,), {"tight": True})]


def test_it_has_the_members_and_no_other_name(fakes: tuple[ModuleType, ModuleType]):
    view = fakes[0].FakeView()
    names = {name for name in dir(view) if not hasattr(object, name) and name != "_strict_fake_state"}
    names -= {"__annotations__", "__getattr__", "__slots__", "__static_attributes__", "__firstlineno__"}
    assert names - {"__annotate__", "__annotate_func__", "__annotations_cache__"} == {
        "rank", "pool", "order", "size", "grow", "load", "drop",
    }  # fmt: skip
    assert not hasattr(view, "__dict__")


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda view: view.pol, "app_of_fakes.handler.View has no member pol, did you mean pool?"),
        (lambda view: setattr(view, "pol", 1), "View has no member pol, did you mean pool?"),
        (lambda view: view.xyz, "View has no member xyz; it has order, pool, rank, size, grow, load, drop"),
        (
            lambda view: setattr(view, "size", 1),
            "size is read-only in app_of_fakes.handler.View; a test sets it",
        ),
        (lambda view: setattr(view, "grow", 1), "grow is read-only"),
        (lambda view: view.pool, "pool was not given to the fake: FakeView(pool=...)"),
        (lambda view: view.drop("a"), "drop was not given to the fake: FakeView(drop=...)"),
    ],
)
def test_everything_else_is_an_attribute_error_that_says_what_to_do(
    use: Callable[[Any], Any], message: str, fakes: tuple[ModuleType, ModuleType]
):
    with pytest.raises(AttributeError) as error:
        use(fakes[0].FakeView())
    assert message in str(error.value)


def test_what_is_not_given_does_not_exist_yet(fakes: tuple[ModuleType, ModuleType]):
    """Attributes that are created on first use: hasattr() is False until then, and again after `del`."""
    view = fakes[0].FakeView()
    assert not hasattr(view, "pool")
    view.pool = None
    assert hasattr(view, "pool")
    del view.pool
    with pytest.raises(fakes[0].NotGiven):
        view.pool  # noqa: B018


def test_give_sets_what_the_handler_may_not(fakes: tuple[ModuleType, ModuleType]):
    module = fakes[0]
    view = module.FakeView(size=1)
    module.give(view, size=2, drop=lambda uuid: None)
    view.drop("a")
    assert view.size == 2 and module.calls_of(view, "drop") == [module.Call("drop", ("a",), {})]
    with pytest.raises(AttributeError, match="did you mean size"):
        module.give(view, siz=1)
    with pytest.raises(TypeError):
        module.FakeView(siz=1)


@pytest.mark.parametrize(
    ("args", "named", "got"),
    [
        ((1,), {"tight": True}, ((1,), {"tight": True})),
        ((1, 2, 3), {"tight": True, "z": 5}, ((1, 2, 3), {"tight": True, "z": 5})),
        ((1,), {"by": 2, "tight": True, "deep": False}, ((1, 2), {"tight": True, "deep": False})),
    ],
)
def test_calls_arrive_as_they_were_made(
    args: tuple[int, ...], named: dict[str, Any], got: tuple[Any, ...], fakes: tuple[ModuleType, ModuleType]
):
    """A default that the caller left out is not passed: the given callable has its own."""
    view = fakes[0].FakeView(grow=lambda *a, **k: (a, k))
    assert view.grow(*args, **named) == got
    assert fakes[0].calls_of(view) == [("grow", *got)]


@pytest.mark.parametrize(
    ("args", "named"), [((), {"tight": True}), ((1,), {}), ((), {"n": 1, "tight": True})]
)
def test_a_call_that_the_protocol_does_not_allow_is_a_type_error(
    args: tuple[int, ...], named: dict[str, Any], fakes: tuple[ModuleType, ModuleType]
):
    with pytest.raises(TypeError):
        fakes[0].FakeView(grow=lambda *a, **k: 1).grow(*args, **named)


def test_after_a_gap_arguments_go_by_name():
    class Fake:
        _strict_fake_state: Any = type("State", (), {"calls": [], "answers": {"f": lambda *a, **k: (a, k)}})

    given = (("a", 1), ("b", NOT_GIVEN), ("c", 3))
    assert answer(Fake(), "f", given, (), {"d": NOT_GIVEN, "e": 5}) == ((1,), {"c": 3, "e": 5})  # type: ignore[arg-type]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_an_asynchronous_member(asynchronous: bool, fakes: tuple[ModuleType, ModuleType]):
    async def later(uuid: str) -> int:
        return len(uuid)

    view = fakes[0].FakeView(load=later if asynchronous else len)
    assert inspect.iscoroutinefunction(view.load) and asyncio.run(view.load("abc")) == 3


def test_a_protocol_without_members(fakes: tuple[ModuleType, ModuleType]):
    with pytest.raises(AttributeError, match="it has no member"):
        fakes[0].FakeNothing().x  # noqa: B018


@pytest.mark.parametrize(
    ("handler", "code", "message"),
    [
        ("class Manager: pass\n", "MG527", "app.handler has no Protocol class"),
        (
            "from typing import Protocol\nclass V(Protocol):\n    x: Unknown\n",
            "MG527",
            "Unknown in `Unknown`",
        ),
        ("from typing import Protocol\nclass Call: pass\nclass V(Protocol):\n    x: Call\n", "MG529", "Call"),
        (
            "from typing import Protocol\nclass V(Protocol):\n    x: FakeV\nclass FakeV: pass\n",
            "MG529",
            "FakeV",
        ),
    ],
)
def test_what_cannot_be_faked_is_an_error(handler: str, code: str, message: str):
    with pytest.raises(MigrationError, match=message) as error:
        text_of(handler)
    assert error.value.code == code


@pytest.mark.parametrize("case", sorted(path.parent.name for path in GOLDEN.glob("*/after")))
def test_the_text_is_formatted_and_lint_free(case: str, tmp_path: Path):
    recipe = recipe_of(case)
    handler = (GOLDEN / case / "after" / recipe.target_file).read_bytes()
    protocols = ProtocolModule(Source(recipe.target_file, handler), recipe.target_module)
    path = tmp_path / "fakes.py"
    path.write_text(fake_text(protocols, lambda top: top == "app"))
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--line-length", "110"]
    first_party = 'lint.isort.known-first-party=["app"]'
    lint = [*ruff, "check", *options, "--select", "E,F,I,B,W", "--config", first_party, str(path)]
    for command in ([*ruff, "format", "--check", *options, str(path)], lint):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_the_example_of_the_page_runs(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs/protocols.md").read_text(encoding="utf-8")
    example = page[page.index("from app.parts.cache") :].partition("```")[0]
    target = GOLDEN / "handles/after/app/parts/cache.py"
    protocols = ProtocolModule(Source("app/parts/cache.py", target.read_bytes()), "app.parts.cache")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/fakes_cache.py").write_text(fake_text(protocols, lambda top: top == "app"))
    (tmp_path / "example.py").write_text(example)
    path = os.pathsep.join([str(tmp_path), str(GOLDEN / "handles/after")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(tmp_path / "example.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# assert_conforms


class Contract(Protocol):
    size: int

    @property
    def free(self) -> int: ...

    def take(self, n: int, /, by: int = ..., *, key: str, wide: bool = ...) -> int: ...


def holder(signature: str, prefix: str = "") -> Any:
    """An object with everything that Contract wants, and `take` with this signature."""
    space: dict[str, Any] = {}
    exec(f"class Real:\n    size = 1\n    free = 2\n    {prefix}def take({signature}): return 1\n", space)
    return space["Real"]()


@pytest.mark.parametrize(
    "signature",
    [
        "self, n, /, by=1, *, key, wide=False",
        "self, count, by=1, *, key, wide=False, more=None",
        "self, n, by=1, key='', wide=True",
        "self, *args, **named",
    ],
)
def test_an_object_that_takes_every_call_conforms(signature: str):
    assert_conforms(Contract, holder(signature))


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        ("self, n, /, by=1, *, key", "take: takes no wide by name"),
        ("self, n, /, by=1, *, wide=1", "take: takes no key by name"),
        ("self, n, /, *, by=1, key, wide=1", "take: takes no by by position"),
        ("self, n, /, many=1, *, key, wide=1", "take: takes no by by name"),
        ("self, n, /, by, *, key, wide=1", "take: by must not be required"),
        ("self, n, /, by=1, *, key, wide", "take: wide must not be required"),
        ("self, n, /, by=1, *, key, wide=1, order", "take: also requires order"),
        ("self, n, /, x=1, by=1, *, key, wide=1", "take: by stands at another place"),
        ("self, *rest, by=1, key, wide=1", "take: by stands at another place"),
    ],
)
def test_an_object_that_would_refuse_or_misread_a_call_does_not_conform(signature: str, problem: str):
    with pytest.raises(AssertionError) as error:
        assert_conforms(Contract, holder(signature))
    assert problem in str(error.value)


def test_parameters_in_another_order_do_not_conform():
    class Wanted(Protocol):
        def f(self, a: int, b: int) -> None: ...

    class Real:
        def f(self, b: int, a: int) -> None: ...

    with pytest.raises(AssertionError, match="a stands at another place"):
        assert_conforms(Wanted, Real())


def test_star_parameters_and_async_must_agree():
    class Wanted(Protocol):
        def f(self, *a: int, **k: int) -> None: ...

        async def g(self) -> None: ...

    class Real:
        def f(self) -> None: ...

        def g(self) -> None: ...

    with pytest.raises(AssertionError) as error:
        assert_conforms(Wanted, Real())
    for problem in ("f: takes no *a", "f: takes no **k", "g: one is `async def`, the other is not"):
        assert problem in str(error.value)


def test_missing_members_are_all_named_and_some_may_be_optional():
    with pytest.raises(AssertionError) as error:
        assert_conforms(Contract, object())
    assert [part in str(error.value) for part in ("size: missing", "free: missing", "take: missing")] == [
        True
    ] * 3
    with pytest.raises(AssertionError) as error:
        assert_conforms(Contract, object(), optional=["size"])
    assert "size" not in str(error.value)


def test_properties_of_the_real_object_are_not_run():
    class Wanted(Protocol):
        @property
        def free(self) -> int: ...

    class Real:
        @property
        def free(self) -> int:
            raise AssertionError("was run")

    assert_conforms(Wanted, Real())


def test_the_fake_conforms_and_so_does_a_real_object(fakes: tuple[ModuleType, ModuleType]):
    module, handler = fakes

    class Real:
        rank, pool, order, size = 0, None, None, 1

        def grow(self, n, by=1, *rest, tight, deep=False, **more): ...  # type: ignore[no-untyped-def]

        async def load(self, uuid): ...  # type: ignore[no-untyped-def]

        def drop(self, uuid): ...  # type: ignore[no-untyped-def]

    for value in (module.FakeView(), Real()):
        module.assert_conforms(handler.View, value)


def test_the_support_is_the_one_that_is_copied(fakes: tuple[ModuleType, ModuleType]):
    for one in (NotGiven, Call, give, calls_of, assert_conforms):
        assert inspect.getsource(getattr(fakes[0], one.__name__)) == inspect.getsource(one)
