"""`migrate trace`: what a program shows of a class's types, in every process and however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migration.errors import MigrationError
from migration.trace.merge import as_document
from migration.trace.probe.states import States
from migration.trace.session import Run, trace
from migration.trace.summary import unseen

from .interpreters import INTERPRETERS, TRACED_BY

CLASS = "app.worker:Worker"
ROOT = Path(__file__).parents[2]

WORKER = """
import asyncio, contextlib, functools
from collections import deque
from pathlib import Path

def bare(function):
    def inner(*args, **named):
        return function(*args, **named)
    return inner

class Pool:
    pass

class Worker:
    __slots__ = ("slot", "__dict__")

    def __init__(self, name, size=3, *rest, flag=True, **named):
        self.name, self.pool, self.table, self.queue = name, None, {}, deque()
        self.path, self.slot = Path("x"), 1.5

    def grow(self, n):
        self.pool = Pool()
        self.table["secret key"] = [n]
        self.queue.append((1, "secret value"))
        return self.pool

    def each(self, n):
        got = yield n
        return got

    async def later(self, x):
        return [x]

    @staticmethod
    def pure(a, b=2):
        return a

    @classmethod
    def make(cls, a):
        return cls(a)

    @property
    def free(self):
        return 1.5

    @free.setter
    def free(self, value):
        self._free = value

    @bare
    def decorated(self, x):
        return x

    @contextlib.contextmanager
    def inside(self, x):
        yield x

    def fail(self):
        raise ValueError

def main():
    worker = Worker.make("secret name")
    Worker("b", 1, 2.5, b"", flag=None, z="q")
    for n in range(3):
        worker.grow(n)
    list(worker.each(1))
    asyncio.run(worker.later(1))
    Worker.pure(1)
    worker.free
    worker.free = "x"
    worker.decorated(b"x")
    with worker.inside(1):
        pass
    try:
        worker.fail()
    except ValueError:
        pass
"""

ATTRIBUTES = {
    "_free": {"str"},
    "name": {"str"},
    "path": {"pathlib.Path"},
    "pool": {"None", "app.worker.Pool"},
    "queue": {"collections.deque", "collections.deque[tuple[int, str]]"},
    "slot": {"float"},
    "table": {"dict", "dict[str, list[int]]"},
}
METHODS: dict[str, Any] = {
    "__init__": {
        "calls": 2,
        "parameters": {
            "**named": {"str": 1},
            "*rest": {"bytes": 1, "float": 1},
            "flag": {"None": 1, "bool": 1},
            "name": {"str": 2},
            "size": {"int": 2},
        },
        "returns": {"None": 2},
    },
    "decorated": {"calls": 1, "parameters": {"x": {"bytes": 1}}, "returns": {}},
    "each": {"calls": 1, "parameters": {"n": {"int": 1}}, "returns": {"collections.abc.Generator": 1}},
    "fail": {"calls": 1, "parameters": {}, "returns": {}},
    "free.getter": {"calls": 1, "parameters": {}, "returns": {"float": 1}},
    "free.setter": {"calls": 1, "parameters": {"value": {"str": 1}}, "returns": {"None": 1}},
    "grow": {"calls": 3, "parameters": {"n": {"int": 3}}, "returns": {"app.worker.Pool": 3}},
    "inside": {"calls": 1, "parameters": {"x": {"int": 1}}, "returns": {}},
    "later": {"calls": 1, "parameters": {"x": {"int": 1}}, "returns": {"list[int]": 1}},
    "make": {"calls": 1, "parameters": {"a": {"str": 1}}, "returns": {"app.worker.Worker": 1}},
    "pure": {"calls": 1, "parameters": {"a": {"int": 1}, "b": {"int": 1}}, "returns": {"int": 1}},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes app/worker.py and a script beside it, and makes that folder the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__init__.py").touch()

    def write(script: str, worker: str = WORKER) -> Path:
        (tmp_path / "app/worker.py").write_text(textwrap.dedent(worker), encoding="utf-8")
        (tmp_path / "run.py").write_text(textwrap.dedent(script), encoding="utf-8")
        return tmp_path / "run.py"

    return write


def traced(
    *command: str, python: str = sys.executable, name: str = CLASS, depth: int = 2, limit: int = 0
) -> tuple[Run, dict[str, Any]]:
    """A run of `python COMMAND` and what the document says of the class."""
    run = trace([python, *command], [name], depth, limit)
    return run, as_document(run.seen, [name])["classes"][name]


def names(counts: dict[str, dict[str, int]]) -> dict[str, set[str]]:
    return {name: set(types) for name, types in counts.items()}


@pytest.mark.parametrize("python", INTERPRETERS, ids=TRACED_BY.get)
def test_types_of_attributes_parameters_and_results(python: str, project: Callable[..., Path]):
    project("from app.worker import main; main()")
    run, seen = traced("run.py", python=python)
    assert run.exit_code == 0 and list(run.seen.backends) == [TRACED_BY[python]]
    assert names(seen["attributes"]) == ATTRIBUTES
    assert seen["methods"] == METHODS
    assert seen["states"] == seen["attributes"]["name"]["str"] + 2  # not there yet as __init__ begins, twice
    assert run.seen.ended_early == 0 and not run.seen.problems


def test_monitoring_is_tried_where_the_machine_has_an_interpreter_with_it():
    """The handlers are also driven directly below, for machines that have none."""
    if len(INTERPRETERS) == 1:
        pytest.skip("no Python 3.12 or later here")
    assert any(name.startswith("monitoring") for name in TRACED_BY.values())


def test_names_of_types_and_never_values(project: Callable[..., Path], tmp_path: Path):
    project("from app.worker import main; main()")
    first, second = (json.dumps(traced("run.py")[1]) for _ in range(2))
    assert "secret" not in first and first == second


@pytest.mark.parametrize("python", INTERPRETERS, ids=TRACED_BY.get)
def test_nothing_of_the_program_is_run_or_changed_by_looking(python: str, project: Callable[..., Path]):
    """Hooks that count, a lying __class__, a metaclass that objects: the program prints what it always did."""
    worker = """
    hooks = []

    class Meta(type):
        def __instancecheck__(cls, value): hooks.append("check"); return False
        def __subclasscheck__(cls, value): hooks.append("subclass"); return False

    class Sly(list):
        def __iter__(self): hooks.append("iter"); return iter(())
        def __len__(self): hooks.append("len"); return 0

    class Worker(metaclass=Meta):
        def __init__(self): self.x, self.sly = 1, Sly([1])
        def __getattribute__(self, name): hooks.append(name); return object.__getattribute__(self, name)
        @property
        def __class__(self): hooks.append("class"); return int
        def step(self): return self.x

    class Slotted(Worker):
        __slots__ = ("slot",)
    """
    script = """
    import inspect, sys
    from app.worker import Slotted, Worker, hooks
    worker = Slotted()
    worker.slot = 1
    hooks.clear()
    worker.step()
    print(hooks, vars(worker), inspect.signature(Worker.step), sys.getprofile(), type(sys.gettrace()).__name__)
    """
    project(script, worker)
    plain = subprocess.run([python, "run.py"], capture_output=True, text=True, check=True).stdout
    code = "import sys\nfrom migration.trace.session import trace\n"
    code += f"run = trace([{python!r}, 'run.py'], [{CLASS!r}], 2, 0)\n"
    code += f"assert run.seen.instances_seen({CLASS!r}) and not run.seen.problems, run.seen\n"
    code += "sys.exit(run.exit_code)"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stdout) == (0, plain), shown.stderr


@pytest.mark.parametrize("python", INTERPRETERS, ids=TRACED_BY.get)
def test_generators_and_coroutines_stay_what_they_are(python: str, project: Callable[..., Path]):
    worker = """
    class Worker:
        def each(self):
            try:
                got = yield 1
                yield got
            except KeyError:
                yield "caught"
        async def later(self): return 1
        async def stream(self):
            got = yield 1
            yield got
    """
    script = """
    import asyncio, inspect
    from app.worker import Worker
    worker = Worker()
    assert inspect.isgeneratorfunction(worker.each) and inspect.iscoroutinefunction(worker.later)
    assert inspect.isasyncgenfunction(worker.stream)
    one = worker.each(); next(one); assert one.send(5) == 5 and one.throw(KeyError) == "caught"
    async def use():
        two = worker.stream(); await two.asend(None); assert await two.asend(6) == 6
        return await worker.later()
    assert asyncio.run(use()) == 1
    """
    project(script, worker)
    run, seen = traced("run.py", python=python)
    assert run.exit_code == 0 and seen["methods"]["each"]["calls"] == 1


@pytest.mark.parametrize("python", INTERPRETERS, ids=TRACED_BY.get)
def test_code_that_serves_other_functions_too_is_left_alone(python: str, project: Callable[..., Path]):
    worker = """
    def make():
        def inner(*args): return 1
        return inner
    shared = make()
    class Worker:
        step = shared
        def __init__(self): pass
    """
    project("from app.worker import Worker, shared; Worker().step(); shared()", worker)
    assert traced("run.py", python=python)[1]["methods"].keys() == {"__init__"}


def test_elements_are_looked_at_again_when_the_container_has_changed():
    seen: dict[tuple[str, str], int] = {}

    def add(name: str, text: str, looks: int) -> None:
        seen[name, text] = seen.get((name, text), 0) + looks

    states = States(add, 2)
    worker = SimpleNamespace(fixed=[1], grown=[], turned=[1])
    for look in range(1, 12):
        if look == 3:
            worker.grown.append(1)
        if look == 6:
            worker.turned[0] = "a"  # of the same length: seen after the next look that is a power of two
        states.look(worker)
    states.settle()
    assert seen == {
        ("fixed", "list[int]"): 11,
        ("grown", "list"): 2,
        ("grown", "list[int]"): 9,
        ("turned", "list[int]"): 8,
        ("turned", "list[str]"): 3,
    }


def test_monitoring_asks_for_events_of_the_class_alone(project: Callable[..., Path]):
    found = [python for python in INTERPRETERS if TRACED_BY[python].startswith("monitoring")]
    if not found:
        pytest.skip("no Python 3.12 or later here")
    script = """
    import sys
    from app.worker import Pool, Worker, main
    tools = [tool for tool in range(6) if sys.monitoring.get_tool(tool) == "migrate trace"]
    assert tools, "not traced"
    local = lambda f: sys.monitoring.get_local_events(tools[0], f.__code__)
    assert sys.monitoring.get_events(tools[0]) == 0 and local(main) == 0 and local(Worker.grow) != 0
    """
    project(script)
    assert traced("run.py", python=found[0])[0].exit_code == 0


def test_the_event_handlers_of_monitoring_driven_directly(tmp_path: Path):
    """A stand-in for sys.monitoring that calls the handlers as the interpreter does: from the frame itself."""
    from migration.trace.probe.monitoring import Monitoring
    from migration.trace.probe.recorder import Recorder
    from migration.trace.probe.subjects import Subject

    class Kinds:
        PY_START, PY_RETURN = 1, 2

    class Events:
        events, DISABLE = Kinds, object()

        def __init__(self) -> None:
            self.handlers: dict[int, Any] = {}
            self.local: dict[Any, int] = {}

        def register_callback(self, tool: int, event: int, handler: Any) -> None:
            self.handlers[event] = handler

        def set_local_events(self, tool: int, code: Any, events: int) -> None:
            self.local[code] = events

    events = Events()

    class Worker:
        def step(self, a: Any, *, b: Any = None) -> Any:
            code = Worker.step.__code__
            self.states = [*getattr(self, "states", []), events.handlers[Kinds.PY_START](code, 0)]
            self.states += [events.handlers[Kinds.PY_RETURN](code, 0, [a])]
            return self.states

    recorder = Recorder(str(tmp_path), 2, 2)
    Monitoring(recorder, events, 4).follow(Subject(CLASS, Worker))
    assert events.local == {Worker.step.__code__: 3}
    worker = Worker()
    for value in (1, "x", 2.5):
        states = worker.step(value)
    assert states == [None, None, None, None, Events.DISABLE, Events.DISABLE]  # two calls were asked for
    recorder.close()
    lines = [json.loads(line) for file in tmp_path.glob("*.jsonl") for line in file.read_text().splitlines()]
    final = {tuple(fact): count for *fact, count in lines}
    assert final[CLASS, "parameter", "step", "a", "int"] == final[CLASS, "parameter", "step", "a", "str"] == 1
    assert final[CLASS, "parameter", "step", "b", "None"] == 2
    assert final[CLASS, "return", "step", "", "list[int]"] == 1
    assert (CLASS, "parameter", "step", "a", "float") not in final


def test_children_are_traced_and_their_files_added_up(project: Callable[..., Path]):
    script = """
    import multiprocessing, subprocess, sys
    from app.worker import Worker
    def work(n): Worker("a").grow(n)
    if __name__ == "__main__":
        work(1)
        for method in ("fork", "spawn"):
            child = multiprocessing.get_context(method).Process(target=work, args=(1,))
            child.start(); child.join()
            assert child.exitcode == 0
        code = "from app.worker import Worker; Worker('a').grow(1)"
        subprocess.run([sys.executable, "-c", code], check=True)
    """
    project(script)
    run, seen = traced("run.py")
    assert run.exit_code == 0 and seen["methods"]["grow"]["calls"] == 4
    # the resource tracker of multiprocessing is a process as well
    assert run.seen.processes >= 4 and run.seen.ended_early == 0


@pytest.mark.slow
def test_the_workers_of_torchrun_are_traced(project: Callable[..., Path]):
    project("from app.worker import main; main()")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run, seen = traced(*launcher, "run.py")
    assert run.exit_code == 0 and seen["methods"]["grow"]["calls"] == 6


@pytest.mark.parametrize("python", INTERPRETERS, ids=TRACED_BY.get)
@pytest.mark.parametrize("end", ["os._exit(9)", "os.kill(os.getpid(), 9)"])
def test_a_process_that_is_killed_leaves_every_type(end: str, python: str, project: Callable[..., Path]):
    script = f"""
    import os
    from app.worker import Worker
    worker = Worker("a")
    for n in range(100): worker.grow(n)
    worker.late = {{1, 2}}
    worker.grow("x")
    {end}
    """
    project(script)
    run, seen = traced("run.py", python=python)
    assert run.exit_code in (9, 137) and run.seen.ended_early == 1
    assert seen["methods"]["grow"]["parameters"]["n"].keys() == {"int", "str"}
    assert seen["attributes"]["late"].keys() == {"set[int]"}
    assert 50 <= seen["methods"]["grow"]["calls"] <= 101
    assert seen["attributes"]["pool"]["app.worker.Pool"] >= 50


def test_an_exception_and_an_exit_code_are_the_programs_own(project: Callable[..., Path]):
    project("from app.worker import main; main(); raise SystemExit(7)")
    run, seen = traced("run.py")
    assert run.exit_code == 7 and seen["methods"]["grow"]["calls"] == 3


def test_ctrl_c_ends_the_program_and_keeps_what_was_seen(project: Callable[..., Path], tmp_path: Path):
    script = """
    import time
    from app.worker import main
    main()
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise SystemExit(5)
    """
    project(script)
    command = ["-c", "from migration.cli import main; main()", "trace", "-o", "types.json", "--class", CLASS]
    process = subprocess.Popen(
        [sys.executable, *command, "--", sys.executable, "run.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to the whole group
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == ("interrupted\n", 5)
    assert json.loads(Path("types.json").read_text())["classes"][CLASS]["methods"]["grow"]["calls"] == 3


def test_counts_are_exact_with_threads(project: Callable[..., Path]):
    script = """
    import sys, threading
    from app.worker import Worker
    worker = Worker("a")
    def work():
        for n in range(200): worker.grow(n)
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    """
    project(script)
    run, seen = traced("run.py")
    assert run.exit_code == 0 and not run.seen.problems
    assert seen["methods"]["grow"]["calls"] == seen["methods"]["grow"]["returns"]["app.worker.Pool"] == 800
    assert seen["attributes"]["name"]["str"] == 1600 + 1 == seen["states"] - 1


@pytest.mark.parametrize("python", INTERPRETERS, ids=TRACED_BY.get)
def test_a_class_of_the_script_itself(python: str, project: Callable[..., Path]):
    project("class Worker:\n    def step(self): self.x = 1\nWorker().step()\n")
    _, seen = traced("run.py", python=python, name="__main__:Worker")
    assert seen["attributes"] == {"x": {"int": 1}}


def test_the_projects_own_sitecustomize_and_packages_are_found(project: Callable[..., Path], tmp_path: Path):
    """A package called `migration`, a sitecustomize, and a path without the folder of the run."""
    (tmp_path / "migration").mkdir()
    (tmp_path / "migration/__init__.py").write_text("MINE = True")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("import builtins; builtins.SITE = True")
    script = """
    import sys, sitecustomize, migration
    from app.worker import main
    assert SITE and migration.MINE and not [p for p in sys.path if "migrate-trace" in p]
    main()
    """
    project(script)
    os.environ["PYTHONPATH"] = str(tmp_path / "own")  # put back by the fixture's monkeypatch
    try:
        run, seen = traced("run.py")
    finally:
        del os.environ["PYTHONPATH"]
    assert run.exit_code == 0 and seen["methods"]["grow"]["calls"] == 3


def test_pytest_as_the_command(project: Callable[..., Path], tmp_path: Path):
    project("")
    (tmp_path / "test_it.py").write_text("from app.worker import main\ndef test_main(): main()\n")
    run, seen = traced("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    assert run.exit_code == 0 and seen["methods"]["grow"]["calls"] == 3


def test_a_method_is_left_alone_after_the_calls_that_were_asked_for(project: Callable[..., Path]):
    project("from app.worker import Worker\nfor n in range(9): Worker('a').grow(n)\n")
    for python in INTERPRETERS:
        _, seen = traced("run.py", python=python, limit=4)
        assert seen["methods"]["grow"]["calls"] == seen["methods"]["grow"]["returns"]["app.worker.Pool"] == 4


@pytest.mark.parametrize(
    ("depth", "name"), [(0, "dict"), (1, "dict[str, list]"), (3, "dict[str, list[tuple[int, int]]]")]
)
def test_depth_of_element_types(depth: int, name: str, project: Callable[..., Path]):
    worker = """
    class Worker:
        def __init__(self): self.x = {"a": [(1, 2)]}
    """
    project("from app.worker import Worker; Worker()", worker)
    assert traced("run.py", depth=depth)[1]["attributes"]["x"].keys() == {name}


def test_a_fault_of_the_probe_stays_in_the_probe(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
):
    """The folder to write to vanishes while the program runs."""
    script = """
    import os
    from app.worker import main
    folder = os.environ["PYTHONPATH"]
    os.rename(folder, folder + "-gone")
    if (child := os.fork()) == 0:
        main()
        print("fine", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    os.rename(folder + "-gone", folder)
    """
    project(script)
    run, _ = traced("run.py")
    assert (run.exit_code, *capfd.readouterr()) == (0, "fine\n", "")


@pytest.mark.parametrize("python", INTERPRETERS, ids=TRACED_BY.get)
def test_a_program_at_the_end_of_its_stack_stays_the_same(python: str, project: Callable[..., Path]):
    worker = """
    class Worker:
        def down(self, n): return 1 + self.down(n + 1)
    """
    script = """
    from app.worker import Worker
    try:
        Worker().down(0)
    except RecursionError as error:
        print(error)
    """
    project(script, worker)
    run, seen = traced("run.py", python=python)
    assert run.exit_code == 0 and seen["methods"]["down"]["calls"] > 50
    assert all("RecursionError" in problem for problem in run.seen.problems)


@pytest.mark.parametrize(
    ("script", "name", "options", "why"),
    [
        ("pass", CLASS, (), "the module was not imported"),
        ("import app.worker", CLASS, (), "none of its own methods"),
        ("import app.worker", "app.worker:Wroker", (), "has no class Wroker, did you mean Worker?"),
        ("from app.worker import main; main()", CLASS, ("-I",), "no Python process took the probe"),
    ],
)
def test_a_run_without_an_instance_says_so(
    script: str, name: str, options: tuple[str, ...], why: str, project: Callable[..., Path]
):
    project(script)
    run, _ = traced(*options, "run.py", name=name)
    assert unseen(run.seen, [name]) and why in " ".join((*unseen(run.seen, [name]), *run.seen.problems))


def migrate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from migration.cli import main; main()", "trace", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_writes_the_file_and_fails_when_it_saw_nothing(project: Callable[..., Path]):
    project("from app.worker import main; main(); print('out')")
    done = migrate("-o", "types.json", "--class", CLASS, "--", sys.executable, "run.py")
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert f"{CLASS}: 14 calls of 11 methods, types of 7 attributes" in done.stderr
    assert ("warning" in done.stderr) is (sys.version_info < (3, 12))
    document = json.loads(Path("types.json").read_text())
    assert document["schema"] == 1 and document["classes"][CLASS]["methods"] == METHODS
    empty = migrate("-o", "types.json", "--class", CLASS, "--", sys.executable, "-c", "pass")
    assert empty.returncode == 3 and f"MG523 no instance of {CLASS} was seen" in empty.stderr
    failing = migrate("-o", "types.json", "--class", CLASS, "--", sys.executable, "-c", "raise SystemExit(9)")
    assert failing.returncode == 9 and "MG523" in failing.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("-o", "t.json", "--", "true"), 64, "name at least one class"),
        (("-o", "t.json", "--class", CLASS), 64, "no command after --"),
        (("-o", "t.json", "--class", "app.worker", "--", "true"), 64, "not of the form pkg.module:Class"),
        (("-o", "t.json", "--class", CLASS, "--max-depth", "x", "--", "true"), 64, "not a number"),
        (("--class", CLASS, "--", "true"), 64, "-o/--output"),
        (("-o", "no/where.json", "--class", CLASS, "--", "true"), 3, "MG303"),
        (("-o", "t.json", "--class", CLASS, "--", "./no-such-program"), 3, "MG522 ./no-such-program"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    arguments: tuple[str, ...], code: int, text: str, project: Callable[..., Path]
):
    done = migrate(*arguments)
    assert done.returncode == code and text in done.stderr
    assert not Path("t.json").exists()


def test_the_slice_names_the_class(project: Callable[..., Path]):
    done = migrate("-o", "types.json", "--slice", "kv", "--", sys.executable, "-c", "pass")
    assert done.returncode == 3 and "batchgen.batchgen_worker:BatchGenWorker" in done.stderr


def test_a_command_that_does_not_exist_is_an_error():
    with pytest.raises(MigrationError, match="no-such-program") as error:
        trace(["no-such-program"], [CLASS], 2, 0)
    assert error.value.code == "MG522"
