"""A run, from lines to lines: what is missing is generated, each result is written as it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from batchgen.requests.output import Finished, ResultFile
from batchgen.requests.parse import RequestDefaults, parse_requests
from batchgen.requests.prepare import prepare_request
from batchgen.requests.ranks import Ranks
from batchgen.requests.results import RunIdentity, TokenText, line_error_id, render_error, render_result
from batchgen.requests.types import (
    GenerationRequest,
    GenerationResult,
    LineError,
    RequestsUnreadableError,
    RunError,
    TokenizedRequest,
    WorkerProgress,
)


class Worker(Protocol):
    """What a run needs of ``BatchGenWorker``."""

    tokenizer: Any
    model_config: Any

    def generate(
        self,
        requests: Sequence[TokenizedRequest],
        *,
        on_result: Callable[[GenerationResult], None] | None = None,
        on_progress: Callable[[WorkerProgress], None] | None = None,
    ) -> list[GenerationResult]: ...

    def stats(self) -> dict[str, int | float]: ...

    def close(self) -> None: ...


@dataclass
class Tally:
    """What a run has done so far: the numbers of its summary. ``errors`` also counts those of earlier
    runs."""

    requests: int = 0
    done_before: int = 0
    results: int = 0
    new_errors: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0

    def count_error(self) -> None:
        self.errors += 1
        self.new_errors += 1

    @property
    def num_done(self) -> int:
        return self.done_before + self.results + self.new_errors

    @property
    def tokens_per_second(self) -> float:
        return self.generated_tokens / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Job:
    """An opened run: its requests split into what the results file already holds and what is to do."""

    identity: RunIdentity
    output: ResultFile
    pending: Mapping[str, GenerationRequest]
    line_ids: Mapping[str, str]
    wrong: tuple[LineError, ...]
    tally: Tally


def open_job(
    requests_path: Path,
    output: ResultFile,
    identity: RunIdentity,
    defaults: RequestDefaults,
    *,
    force: bool = False,
    restart: bool = False,
) -> Job:
    """Read the requests and take over earlier results; nothing is written yet.

    Raises RequestsUnreadableError, OutputConflictError (``ResultFile.resume``) or OutputError.
    """
    try:
        with open(requests_path, "rb") as file:
            requests, errors = parse_requests(file, defaults)
    except OSError as error:
        raise RequestsUnreadableError(f"cannot read {requests_path}: {error.strerror}") from error
    line_ids = {request.custom_id: identity.request_id(request) for request in requests}
    expected: dict[str, str | None] = {line_id: custom_id for custom_id, line_id in line_ids.items()}
    expected.update((line_error_id(wrong), wrong.custom_id) for wrong in errors)
    if restart:
        output.restart()
        finished = Finished()
    else:
        finished = output.resume(
            expected, fingerprint=identity.fingerprint, requests_name=str(requests_path), force=force
        )
    pending = {
        request.custom_id: request
        for request in requests
        if line_ids[request.custom_id] not in finished.ids and request.custom_id not in finished.custom_ids
    }
    missing_errors = [wrong for wrong in errors if line_error_id(wrong) not in finished.ids]
    tally = Tally(
        requests=len(expected),
        done_before=len(expected) - len(pending) - len(missing_errors),
        errors=finished.num_errors,
    )
    return Job(identity, output, pending, line_ids, tuple(missing_errors), tally)


def report_wrong_lines(job: Job) -> None:
    """Write the error lines of what needs no model to be refused. Raises OutputError."""
    for wrong in job.wrong:
        _write_error(job, wrong)


def lead(
    job: Job, worker: Worker, ranks: Ranks, on_progress: Callable[[WorkerProgress], None] | None = None
) -> None:
    """Rank 0's part: tokenize, generate what is missing, write each result as it arrives.

    Raises OutputError, or RunError where the worker ends without a result for every request.
    """
    started = time.monotonic()
    context = worker.model_config.max_position_embeddings
    ready: list[TokenizedRequest] = []
    for custom_id, request in job.pending.items():
        prepared = prepare_request(request, job.line_ids[custom_id], worker.tokenizer, context)
        if isinstance(prepared, LineError):
            _write_error(job, prepared)
        else:
            ready.append(prepared)
    waiting = {request.custom_id for request in ready}
    token_text = TokenText(lambda ids: worker.tokenizer.decode(ids, skip_special=False))

    def on_result(result: GenerationResult) -> None:
        if result.custom_id not in waiting:
            raise RunError(f"the engine gave a second result for custom_id {result.custom_id!r}")
        request = job.pending[result.custom_id]
        job.output.append(
            render_result(request, job.line_ids[request.custom_id], result, job.identity, token_text)
        )
        waiting.remove(result.custom_id)
        tally = job.tally
        if result.finish_reason == "error":
            tally.count_error()
        else:
            tally.results += 1
        tally.prompt_tokens += result.prompt_tokens
        tally.generated_tokens += len(result.token_ids)
        tally.seconds = time.monotonic() - started

    worker.generate(ranks.share(ready), on_result=on_result, on_progress=on_progress)
    job.tally.seconds = time.monotonic() - started
    if waiting:
        raise RunError(
            f"the engine ended without a result for {len(waiting)} of {len(ready)} requests, "
            f"among them custom_id {min(waiting)!r}; run the same command again for them"
        )


def follow(worker: Worker, ranks: Ranks) -> None:
    """The part of every other rank: generate what rank 0 says."""
    worker.generate(ranks.share([]))


def _write_error(job: Job, error: LineError) -> None:
    job.output.append(render_error(error))
    job.tally.count_error()
