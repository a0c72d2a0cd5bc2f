"""``batchgen run`` as a function: it opens the files, starts the engine, and tells the user how it ended."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from batchgen.gates import GateFlagError, close_gates, report_path
from batchgen.logs import shown_from
from batchgen.progress import ProgressBar
from batchgen.requests.output import ResultFile
from batchgen.requests.parse import RequestDefaults
from batchgen.requests.ranks import Ranks
from batchgen.requests.results import RunIdentity
from batchgen.requests.run import Job, Worker, follow, lead, open_job, report_wrong_lines
from batchgen.requests.types import AgreedUsageError, RunError, UsageError

if TYPE_CHECKING:
    from batchgen.engine import EngineOptions
    from shadow.experiment import Closing

EXIT_OK, EXIT_ERROR_LINES, EXIT_ENGINE, EXIT_INTERRUPTED, EXIT_TERMINATED = 0, 1, 2, 130, 143


@dataclass(frozen=True)
class RunCommand:
    """The options of one run; ``engine`` are the fields of ``batchgen.engine.EngineOptions``."""

    requests: Path
    output: str
    engine: Mapping[str, Any]
    ignore_model: bool = False
    restart: bool = False
    force: bool = False
    strict: bool = False
    progress: bool | None = None
    as_json: bool = False
    with_traceback: bool = False
    log_level: str | None = None

    def identity(self) -> RunIdentity:
        model = self.engine["model"]
        path = Path(model)
        is_file = path.is_file() or (path / "config.json").is_file()
        return RunIdentity(
            model=path.name if is_file else model,
            model_source=f"{path.name}:{_size_of(path)}" if is_file else model,
            dtype=self.engine["dtype"],
            seed=self.engine["seed"],
            row_exact=self.engine["row_exact"],
            max_tokens_default=self.engine["max_tokens_default"],
            policy=self.engine["policy"],
            adaptive_sampling=self.engine["adaptive_sampling"],
            attention=self.engine["attention"],
            attention_mode=self.engine["attention_mode"],
        )

    def defaults(self) -> RequestDefaults:
        names = frozenset((self.engine["model"], self.identity().model))
        return RequestDefaults(
            self.engine["max_tokens_default"],
            self.engine["seed"],
            None if self.ignore_model else names,
            self.engine["policy"],
        )


class Terminated(KeyboardInterrupt):
    """SIGTERM: it ends a run as cleanly as Ctrl-C does."""


def execute(command: RunCommand) -> int:
    """Run it; everything that can go wrong becomes one line on stderr and an exit code."""
    with shown_from(command.log_level):
        return _Run(command).execute()


class _Run:
    def __init__(self, command: RunCommand) -> None:
        self.command = command
        self.ranks = Ranks.from_environment()
        self.job: Job | None = None
        self.closing: Closing | None = None

    def execute(self) -> int:
        try:
            stats = self._lead() if self.ranks.is_first else self._follow()
        except (KeyboardInterrupt, Exception) as error:
            code = self._ended(_origin(error))
            if self.ranks.world_size > 1:
                # The interpreter's own way out waits for collectives that the other ranks will never join.
                sys.stdout.flush()
                os._exit(code)
            return code
        self.ranks.part()
        return self._finished(stats) if self.ranks.is_first else EXIT_OK

    def _lead(self) -> dict[str, int | float]:
        command = self.command
        self._engine_options()
        with ResultFile(command.output) as output:
            self.job = job = open_job(
                command.requests,
                output,
                command.identity(),
                command.defaults(),
                force=command.force,
                restart=command.restart,
            )
            report_wrong_lines(job)
            if not job.pending and self.ranks.world_size == 1:
                return {}
            console = Console(stderr=True, force_terminal=command.progress)
            show = console.is_terminal if command.progress is None else command.progress
            if not show:
                self._say(self._opening(job))
            with (
                ProgressBar(console, total=job.tally.requests, enabled=show) as bar,
                self._worker() as worker,
            ):
                lead(job, worker, self.ranks, bar.update)
                self.closing = close_gates()
                return worker.stats()

    def _follow(self) -> dict[str, int | float]:
        with self._worker() as worker:
            follow(worker, self.ranks)
            close_gates()
            return worker.stats()

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        from batchgen.engine import EngineOptionError, build_step_worker, build_worker

        worker: Worker
        try:
            options = replace(self._engine_options(), gate_report=report_path(self.command.output))
            worker = (build_step_worker if options.policy == "step" else build_worker)(options)
        except EngineOptionError as error:
            raise UsageError(str(error)) from error
        except GateFlagError as error:
            raise AgreedUsageError(str(error)) from error
        previous = signal.signal(signal.SIGTERM, _terminate)
        try:
            yield worker
        finally:
            # torchrun sends each signal twice; the second must not leave shared memory behind.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
            worker.close()
            # Where an error ends one of several ranks, the launcher's signal is on its way: it must not come before
            # the line that says why. `execute` ends the process then.
            if self.ranks.world_size == 1 or sys.exc_info()[0] is None:
                signal.signal(signal.SIGINT, interrupt)
                signal.signal(signal.SIGTERM, previous)

    def _engine_options(self) -> EngineOptions:
        from batchgen.engine import EngineOptionError, EngineOptions, check_options

        options = EngineOptions(**self.command.engine)
        try:
            check_options(options)
        except EngineOptionError as error:
            raise UsageError(str(error)) from error
        return options

    def _opening(self, job: Job) -> str:
        tally = job.tally
        done = f", {tally.done_before} done before" if tally.done_before else ""
        wrong = f", {tally.errors} error lines" if tally.errors else ""
        return (
            f"{tally.requests} requests{done}{wrong}; generating {len(job.pending)} with {job.identity.model}"
        )

    def _finished(self, stats: dict[str, int | float]) -> int:
        assert self.job is not None
        tally, command = self.job.tally, self.command
        if not tally.requests:
            text = f"{command.requests} holds no requests; {command.output} has no results"
        elif tally.done_before == tally.requests:
            text = f"all {tally.requests} requests are done already in {command.output}"
        else:
            errors = f" and {tally.new_errors} error lines" if tally.new_errors else ""
            text = (
                f"{tally.results} results{errors} in {tally.seconds:.1f} s, {tally.generated_tokens} tokens, "
                f"{tally.tokens_per_second:.1f} tokens/s{_parking(stats)}: {command.output}"
            )
        code = EXIT_ERROR_LINES if command.strict and tally.errors else EXIT_OK
        self._say(text)
        self._summarize(code, None, stats)
        self._tell_of_gates()
        return code

    def _ended(self, error: BaseException) -> int:
        if isinstance(error, KeyboardInterrupt):
            code = EXIT_TERMINATED if isinstance(error, Terminated) else EXIT_INTERRUPTED
            if self.ranks.is_first:
                self.ranks.is_first_to_fail()  # the others, which this one's end breaks, have nothing to add
                self._failed(code, "terminated" if code == EXIT_TERMINATED else "interrupted")
            return code
        if isinstance(error, RunError):
            of_all = isinstance(error, AgreedUsageError)
            return self._failed_once(error.exit_code, str(error), is_of_all=of_all)
        return self._failed_once(EXIT_ENGINE, _engine_failure(error))

    def _failed_once(self, code: int, message: str, *, is_of_all: bool = False) -> int:
        if self.ranks.is_first_to_fail():
            own = self.ranks.is_first or is_of_all
            self._failed(code, message if own else f"rank {self.ranks.rank}: {message}")
        return code

    def _failed(self, code: int, message: str) -> None:
        if self.command.with_traceback:
            traceback.print_exc()
        if self.job is not None and code != UsageError.exit_code:
            tally, output = self.job.tally, self.job.output
            message += f" ({tally.num_done} of {tally.requests} lines are in {output.path}"
            message += "; the same command again finishes the rest)" if output.resumable else ")"
        self.closing = close_gates(alone=True)
        self._say(message)
        self._summarize(code, message, {})
        if self.closing is not None and self.closing.calls:
            self._tell_of_gates()

    def _tell_of_gates(self) -> None:
        if self.closing is not None:
            self._say(self.closing.line())

    def _say(self, message: str) -> None:
        print(f"batchgen: {' '.join(message.split())}", file=sys.stderr, flush=True)

    def _summarize(self, code: int, error: str | None, stats: Mapping[str, int | float]) -> None:
        if self.command.as_json:
            counts = {} if self.job is None else asdict(self.job.tally)
            facts = {
                "output": self.command.output,
                "exit_code": code,
                "error": error,
                **counts,
                "engine": dict(stats),
            }
            if self.closing is not None:
                facts["compare_mode"] = {
                    "verdict": self.closing.verdict.words,
                    "calls": self.closing.calls,
                    "compared": self.closing.compared,
                    "diverged": self.closing.diverged,
                    "reports": self.closing.reports,
                }
            print(json.dumps(facts), flush=True)


def _parking(stats: Mapping[str, int | float]) -> str:
    """How often rows made room for others, where that can be (the step policy)."""
    spilled, requeued = stats.get("spilled", 0), stats.get("requeued", 0)
    resumed = stats.get("swapped_in", 0) + stats.get("resumed", 0)
    if "preempted" not in stats:
        return ""
    return f", {spilled + requeued} preempted ({spilled} spilled, {requeued} requeued), {resumed} resumed"


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise Terminated


def _origin(error: BaseException) -> BaseException:
    """The stop or the RunError that began it, where the engine's own cleaning up failed after that."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (KeyboardInterrupt, RunError)):
            return cause
        cause = cause.__context__
    return error


def _engine_failure(error: BaseException) -> str:
    """What went wrong, without the type where the message was written for the user."""
    from batchgen.models import ModelLoadError

    if isinstance(error, ModelLoadError):
        return str(error)
    if "Connection closed by peer" in str(error) or "Connection reset by peer" in str(error):
        return "the connection to another rank broke: that rank ended; the launcher's report says how"
    return f"the engine failed: {type(error).__name__}: {error}"


def _size_of(path: Path) -> int:
    files = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
