"""What the sides are given to do: request files, or a workload by name."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shadow.commands import options

if TYPE_CHECKING:
    from reports import Fact, Report
    from shadow.messages import Setup
    from shadow.observation import Event
    from shadow.workloads import Engine, Scale, Workload


def add_workload_options(parser: argparse.ArgumentParser) -> None:
    """Beside --requests: for commands that can do without a file."""
    parser.add_argument(
        "--workload",
        metavar="NAME[,NAME]",
        help="L1, L2-2048, L2-4096, L3, mixed or boundaries; several run back to back on the same live workers "
        "(default, where no --requests are given: mixed)",
    )
    parser.add_argument(
        "--scale", type=_scale, metavar="caps/N,prompts/N", help="a smaller ladder for a small machine"
    )
    parser.add_argument("--steps", type=options.positive, metavar="N", help="end after N decode steps")
    parser.add_argument(
        "--content-every",
        type=options.positive,
        default=1,
        metavar="N",
        help="content of KV and logits of each Nth decode step only; integers of all",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the prompts of a workload (default: 0)"
    )


def _scale(text: str) -> Scale:
    from shadow.workloads import Scale

    try:
        return Scale.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class Submitted:
    """What one run of a command submits, and what it has seen of it."""

    def __init__(self, arguments: argparse.Namespace, workload: Workload | None, files: tuple[str, ...]):
        from shadow.workloads import Coverage
        from shadow.workloads.realised import Realised

        self.workload, self.files = workload, files
        self._steps, self._every = arguments.steps, arguments.content_every
        self._realised = Realised(() if workload is None else workload.batches)
        self._coverage = None
        if workload is not None and workload.required:
            self._coverage = Coverage(_engine(arguments, workload), workload.batches)

    def setup(self, setup: Setup) -> Setup:
        """`setup` with these batches, and what they need of the engine where the user said nothing else."""
        setup = replace(setup, batches=self.files, max_steps=self._steps, content_every=self._every)
        if self.workload is None:
            return setup
        return replace(
            setup,
            options={**self.workload.options, **setup.options},
            environment={**self.workload.environment, **setup.environment},
        )

    def see(self, event: Event) -> None:
        """Every event of one side, in order."""
        self._realised.see(event)
        if self._coverage is not None:
            self._coverage.see(event)

    def facts(self) -> tuple[Fact, ...]:
        from reports import Fact
        from shadow.workloads.verdict import facts

        if self.workload is None:
            return (Fact("requests file", ", ".join(self.files)),)
        return facts(self.workload, self._steps, self._every)

    def judged(self, report: Report) -> Report:
        from shadow.workloads.verdict import judged

        if self.workload is None:
            return report
        counts = {} if self._coverage is None else self._coverage.counts
        cut_short = self._steps is not None
        return judged(report, self.workload, self._realised.yields(), counts, cut_short=cut_short)


@contextmanager
def submitted(arguments: argparse.Namespace) -> Iterator[Submitted]:
    """The files exist as long as the context. WorkloadError: no such workload, or not on this model."""
    from shadow.workloads import Scale, WorkloadError, workload, write_batches

    if arguments.requests:
        if arguments.workload or arguments.scale:
            raise WorkloadError("--requests are a workload of their own: leave out --workload and --scale")
        yield Submitted(arguments, None, tuple(map(str, arguments.requests)))
        return
    page_size = arguments.page_size or _default("page_size")
    names = (arguments.workload or "mixed").split(",")
    chosen = workload(names, arguments.scale or Scale(), page_size, arguments.seed)
    _fits(arguments, chosen)
    with tempfile.TemporaryDirectory(prefix="shadow-workload-") as folder:
        yield Submitted(arguments, chosen, write_batches(chosen.batches, Path(folder)))


def _default(name: str) -> int:
    from batchgen.engine import EngineOptions

    value = getattr(EngineOptions(), name)
    assert isinstance(value, int)
    return value


def _fits(arguments: argparse.Namespace, chosen: Workload) -> None:
    """WorkloadError where a level of the ladder is longer than the model's context."""
    if not chosen.to_the_cap:
        return
    from batchgen.models import ModelLoadError, context_length
    from shadow.workloads import WorkloadError

    model = arguments.model or str(chosen.options.get("model", "smollm2"))
    try:
        context = context_length(model)
    except ModelLoadError as error:
        raise WorkloadError(str(error)) from error
    if chosen.context > context:
        raise WorkloadError(
            f"{chosen.name} needs a context of {chosen.context:,} tokens, {model} has {context:,}: give another "
            f"--model, or divide the caps (--scale caps/{-(-chosen.context // context)})"
        )


def _engine(arguments: argparse.Namespace, chosen: Workload) -> Engine:
    """The sizes that the run will have, for the coverage table."""
    from batchgen.cuda_graph import generate_bucket_sizes
    from shadow.workloads import Engine

    def size(given: int | None, name: str) -> int:
        value = given or chosen.options.get(name) or _default(name)
        assert isinstance(value, int)
        return value

    rows = size(arguments.max_batch, "max_batch_size")
    buckets = generate_bucket_sizes(min(128, rows), size(None, "cuda_graph_num_buckets"))
    return Engine(size(arguments.page_size, "page_size"), rows, buckets)
