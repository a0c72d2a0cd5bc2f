"""What the process of a side does; shadow.zygote forks it and calls `main` with the descriptor of its pipe.

`batchgen` is imported from TREE and from nowhere else; every module of it that was loaded is checked.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import pickle
import random
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from shadow.deltas import Encoder
from shadow.graft import hook as graft
from shadow.messages import Done, Failed, HarnessError, Hello, Joining, Offer, Reply, Setup
from shadow.mutants.registry import MutantError, Plant, load
from shadow.observation import Event, Tokens
from shadow.observer import EnoughSteps, Observer
from shadow.ranks.announcing import announcing, show_stacks


class Link:
    """The pipe to the comparing process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._encoder = Encoder()
        self.fired: int | None = None  # the step at which a planted fault struck first
        self.observer: Observer | None = None

    def setup(self) -> Setup:
        message = self._connection.recv()
        assert isinstance(message, Setup)
        return message

    def send(self, message: Hello | Event | Failed | Done | Joining) -> None:
        what = self._encoder.encode(message) if isinstance(message, Event) else message
        # Not `Connection.send`: its pickler looks for reducers written in Python at every object.
        self._connection.send_bytes(pickle.dumps(what, pickle.HIGHEST_PROTOCOL))

    def ask(self, event: Event) -> Tokens:
        self.send(event)
        reply = self._connection.recv()
        assert isinstance(reply, Reply)
        return reply.tokens

    def offer(self, offer: Offer) -> None:
        self._connection.send(offer)

    def hold(self) -> None:
        """Waits until the comparing process has no more use for this one."""
        with suppress(EOFError, ConnectionResetError):
            self._connection.recv()

    def taken(self) -> Mapping[str, Any] | None:
        answer = self._connection.recv()
        assert isinstance(answer, Offer)
        return answer.material


def check_origin(tree: Path) -> None:
    """HarnessError unless every loaded module of batchgen lies in `tree`."""
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.split(".")[0] == "batchgen" and file and not Path(file).resolve().is_relative_to(tree):
            raise HarnessError(f"module {name} was loaded from {file}, which is outside of the tree {tree}")


def loaded(tree: Path) -> dict[str, str]:
    """The file, within the tree, of every module of batchgen that was loaded."""
    files = {name: getattr(module, "__file__", None) for name, module in sorted(sys.modules.items())}
    return {
        name: str(Path(file).resolve().relative_to(tree))
        for name, file in files.items()
        if name.split(".")[0] == "batchgen" and file
    }


def gates_said(*, alone: bool) -> str:
    """Ends the gates of the worker that compared, which writes their reports; what they found, "" without any.

    Of several ranks all do so together, and not `alone`.
    """
    gates = sys.modules.get("batchgen.gates")
    closing = None if gates is None else gates.close_gates(alone=alone)
    return "" if closing is None else str(closing.line())


@dataclass(frozen=True)
class Built:
    """A worker of the tree, with the class that attention state is bound on and the options that it got."""

    worker: Any
    wrapper: Any
    options: Any


def build(tree: Path, options: Mapping[str, object], threads: int) -> Built:
    """The worker of `tree`, from which `batchgen` is imported from now on. HarnessError: it came from elsewhere."""
    sys.path.insert(0, str(tree))
    torch.set_num_threads(threads)
    engine = importlib.import_module("batchgen.engine")
    check_origin(tree)
    chosen = engine.EngineOptions(**{**options, "threads": threads})
    step_policy = options.get("policy") == "step"
    worker = (engine.build_step_worker if step_policy else engine.build_worker)(chosen)
    return Built(worker, importlib.import_module("batchgen.attention").AttnWrapperBase, chosen)


def read_requests(worker: Any, path: str, order: int | None, **defaults: str) -> tuple[list[Any], int]:
    """(requests ready to generate, lines refused), read with the tree's own parser; `order` shuffles them.

    `defaults` are fields of the parser's RequestDefaults.
    """
    requests = importlib.import_module("batchgen.requests")
    with open(path, "rb") as file:
        parsed, errors = requests.parse_requests(file, requests.RequestDefaults(**defaults))
    context = worker.model_config.max_position_embeddings
    prepared = [requests.prepare_request(r, r.custom_id, worker.tokenizer, context) for r in parsed]
    ready = [item for item in prepared if not isinstance(item, requests.LineError)]
    if order is not None:
        random.Random(order).shuffle(ready)
    return ready, len(errors) + len(prepared) - len(ready)


@contextmanager
def planted(setup: Setup, worker: Any, observer: Observer, link: Link) -> Iterator[None]:
    """The fault that this side is to have. HarnessError where it is not to be found, or cannot be planted."""
    if setup.mutant is None:
        yield
        return
    source, name = setup.mutant
    try:
        found = load(source)
    except MutantError as error:
        raise HarnessError(str(error)) from error
    if name not in found:
        raise HarnessError(f"{source} has no mutant {name!r}")

    def fired() -> None:
        if observer.fired is None:
            observer.fired = link.fired = observer.steps

    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "batchgen"}
    plant = Plant(worker, lambda: observer.steps, fired, modules)
    with ExitStack() as stack:
        try:
            stack.enter_context(found[name].plant(plant))
        except Exception as error:
            why = f"mutant {name} cannot be planted: {type(error).__name__}: {error}"
            raise HarnessError(why) from error
        yield


def run(setup: Setup, link: Link) -> None:
    """Builds the worker of the tree, runs the batches under observation, reports; errors propagate."""
    tree = Path(setup.tree).resolve()
    built = build(tree, setup.options, setup.threads)
    worker = built.worker
    batches = [read_requests(worker, path, setup.order) for path in setup.batches]
    observer = Observer(
        worker,
        built.wrapper,
        link.send,
        link.ask,
        structural=setup.structural,
        content_every=setup.content_every,
        max_steps=setup.max_steps,
        only=setup.only,
        layers=setup.layers,
        numeric=setup.numeric,
    )
    link.observer = observer
    if setup.graft is not None:
        graft.install(observer, setup.graft.step, setup.graft.input, link.offer, link.taken)
    file = Path(sys.modules[type(worker).__module__].__file__ or "")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    check_origin(tree)
    link.send(
        Hello(
            worker_file=str(file.resolve()),
            worker_sha256=digest,
            torch_version=str(torch.__version__),
            requests=sum(len(ready) for ready, _ in batches),
            refused_lines=sum(refused for _, refused in batches),
            kinds=observer.kinds,
            unobservable=observer.unobservable,
        )
    )
    gc.collect()
    gc.freeze()  # what is there now stays: observing makes objects enough for it to be searched again and again
    told = announcing(setup.place, tree, link.send, lambda: observer.steps)
    with told, planted(setup, worker, observer, link):
        try:
            for requests, _ in batches:
                observer.finish(worker.generate(requests))
        except EnoughSteps:
            pass  # the observer has said so
    check_origin(tree)
    worker.close()
    seconds = (observer.forward_seconds, observer.observe_seconds, observer.wait_seconds)
    alone = setup.place is None
    link.send(Done(observer.steps, *seconds, link.fired, loaded(tree), gates_said(alone=alone)))
    if not alone:
        link.hold()  # a rank that leaves breaks the connections of those that are behind


def main(arguments: Sequence[str]) -> int:
    link = Link(Connection(int(arguments[0])))
    setup = link.setup()
    if setup.place is not None:
        show_stacks()
    try:
        run(setup, link)
    except (BrokenPipeError, ConnectionResetError, EOFError):
        return 1  # the comparing process is gone or has seen enough
    except Exception as error:
        harness = isinstance(error, HarnessError)
        step = None if link.observer is None else link.observer.steps
        said = (type(error).__name__, str(error), traceback.format_exc())
        link.send(Failed(*said, harness, link.fired, step))
        return 1
    return 0
