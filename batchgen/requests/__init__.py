"""Requests and results in the OpenAI batch format, and the run that turns one into the other."""

from batchgen.requests.output import Finished, FinishedLine, ResultFile
from batchgen.requests.parse import RequestDefaults, derived_seed, parse_line, parse_requests
from batchgen.requests.prepare import TextEncoder, prepare_request
from batchgen.requests.ranks import Ranks
from batchgen.requests.results import RunIdentity, TokenText, line_error_id, render_error, render_result
from batchgen.requests.run import Job, Tally, Worker, follow, lead, open_job, report_wrong_lines
from batchgen.requests.types import (
    CHAT_ENDPOINT,
    COMPLETIONS_ENDPOINT,
    GenerationRequest,
    GenerationResult,
    LineError,
    OutputBusyError,
    OutputConflictError,
    OutputError,
    RequestsUnreadableError,
    RunError,
    StepParams,
    TokenizedRequest,
    ToolCall,
    UsageError,
    WorkerProgress,
)

__all__ = [
    "CHAT_ENDPOINT",
    "COMPLETIONS_ENDPOINT",
    "Finished",
    "FinishedLine",
    "GenerationRequest",
    "GenerationResult",
    "Job",
    "LineError",
    "OutputBusyError",
    "OutputConflictError",
    "OutputError",
    "Ranks",
    "RequestDefaults",
    "RequestsUnreadableError",
    "ResultFile",
    "RunError",
    "RunIdentity",
    "StepParams",
    "Tally",
    "TextEncoder",
    "TokenText",
    "TokenizedRequest",
    "ToolCall",
    "UsageError",
    "Worker",
    "WorkerProgress",
    "derived_seed",
    "follow",
    "lead",
    "line_error_id",
    "open_job",
    "parse_line",
    "parse_requests",
    "prepare_request",
    "render_error",
    "render_result",
    "report_wrong_lines",
]
