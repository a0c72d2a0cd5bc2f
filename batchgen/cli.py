"""The ``batchgen`` command. Nothing heavy is imported before a command runs, so that help is immediate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

EXIT_USAGE = 64
# typer exports, of the parser's usage errors, only this subclass of their common base.
_PARSER_ERROR = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LOG_LEVELS = ("debug", "info", "warning", "error")
_RUN_EPILOG = """
[bold]Examples[/bold]

batchgen run requests.jsonl -o results.jsonl

batchgen run requests.jsonl -o results.jsonl --model tiny --page-size 16 --gpu-pages 64

batchgen run requests.jsonl -o results.jsonl --json --strict > summary.json

batchgen run requests.jsonl -o results.jsonl --policy step --gpu-pages 64 --spill-dir /tmp/spill

torchrun --nproc-per-node 2 -m batchgen run requests.jsonl -o results.jsonl

[bold]Lines[/bold]

A request: custom_id, url (/v1/chat/completions or /v1/completions) and body, with model, messages (text only) or \
prompt (text or token ids), max_tokens, max_completion_tokens, temperature (0 if absent), top_p, stop, seed, logprobs, \
top_logprobs, ignore_eos. With --policy step also top_k, min_p, repetition_penalty, presence_penalty, \
frequency_penalty, logit_bias, min_tokens, timeout (seconds), enable_thinking, thinking_budget, tools, tool_choice. \
Fields that change no text (user, metadata, ...) are ignored; others are refused by name.

A result: id, custom_id, response (status_code, request_id, body) and error, which is null or has code, message and \
line. Lines come in order of completion, and hold neither a clock nor a random id.

[bold]Exit codes[/bold]

0 finished: every line of the requests has its line in the results

1 finished, but some are error lines (only with --strict)

2 the model or the engine failed

64 wrong usage; 65 the results file holds other results; 66 the requests cannot be read

74 the results cannot be written, as on a full disk; 75 another run is writing the same file

130 interrupted; 143 terminated

After 2, 74, 130 and 143 the same command again finishes the rest.
"""

app = typer.Typer(
    name="batchgen",
    help="Generate text for files of requests: offline, batched, with a paged KV cache, on CPU or GPU.",
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_ENGINE, _FILES, _OUTCOME = "Engine", "Results file", "What is shown"


@app.command(epilog=_RUN_EPILOG)
def run(
    requests: Annotated[Path, typer.Argument(help="Requests: JSON lines in the OpenAI batch format.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Results: one line a request, in order of completion; - is stdout."
        ),
    ],
    model: Annotated[
        str,
        typer.Option(help="smollm2, tiny, tiny-dual, tiny-hybrid, a .gguf file, or a safetensors folder."),
    ] = ("smollm2"),
    max_tokens: Annotated[int, typer.Option(help="For requests that do not say.")] = 128,
    seed: Annotated[int, typer.Option(help="For sampled requests that name no seed.")] = 0,
    ignore_model: Annotated[
        bool, typer.Option("--ignore-model", help="Also run lines whose body names another model.")
    ] = False,
    dtype: Annotated[
        str, typer.Option(help="float32, bfloat16 or float16: weights and KV cache.", rich_help_panel=_ENGINE)
    ] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=_ENGINE)] = "auto",
    threads: Annotated[
        int | None, typer.Option(help="CPU threads; torch decides if not given.", rich_help_panel=_ENGINE)
    ] = None,
    max_batch: Annotated[
        int, typer.Option(help="Sequences decoded at once, per rank.", rich_help_panel=_ENGINE)
    ] = 64,
    page_size: Annotated[int, typer.Option(help="Tokens per KV page.", rich_help_panel=_ENGINE)] = 64,
    gpu_pages: Annotated[
        int | None,
        typer.Option(help="KV pages on the device; by need if not given.", rich_help_panel=_ENGINE),
    ] = None,
    host_pages: Annotated[
        int | None,
        typer.Option(help="KV pages in host memory; by need if not given.", rich_help_panel=_ENGINE),
    ] = None,
    host_kv_watermark: Annotated[
        int, typer.Option(help="Percent of free host pages at which decode yields.", rich_help_panel=_ENGINE)
    ] = 70,
    policy: Annotated[
        str,
        typer.Option(
            help="boundary: decisions at page boundaries; step: at every token, preempting rows when pages run out.",
            rich_help_panel=_ENGINE,
        ),
    ] = "boundary",
    spill_dir: Annotated[
        Path | None,
        typer.Option(
            help="Policy step: folder for preempted rows; without it they are prefilled again.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    spill_bytes: Annotated[
        str | None,
        typer.Option(help="What --spill-dir may take, as in 512M or 8G.", rich_help_panel=_ENGINE),
    ] = None,
    adaptive_sampling: Annotated[
        bool,
        typer.Option(
            "--adaptive-sampling",
            help="Policy step: the temperature of sampled requests follows how sure the model is.",
            rich_help_panel=_ENGINE,
        ),
    ] = False,
    row_exact: Annotated[
        bool,
        typer.Option(
            "--row-exact",
            help="Row by row: results do not depend on the batch; slow.",
            rich_help_panel=_ENGINE,
        ),
    ] = False,
    attention: Annotated[
        str,
        typer.Option(help="torch, or flashinfer (CUDA, bfloat16 or float16).", rich_help_panel=_ENGINE),
    ] = "torch",
    attention_mode: Annotated[
        str,
        typer.Option(
            help="Of flashinfer: fast, or exact: what a row gets does not depend on the batch.",
            rich_help_panel=_ENGINE,
        ),
    ] = "fast",
    flashinfer_objects: Annotated[
        Path | None,
        typer.Option(
            help="Folder of prebuilt kernels (make flashinfer-objects), where FlashInfer is not installed.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    no_cuda_graphs: Annotated[
        bool, typer.Option("--no-cuda-graphs", help="Decode without static buffers.", rich_help_panel=_ENGINE)
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Drop earlier results, begin anew.", rich_help_panel=_FILES)
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Continue a file of other requests or options, keeping it.",
            rich_help_panel=_FILES,
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if there are error lines.", rich_help_panel=_OUTCOME)
    ] = False,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress", help="On if stderr is a terminal.", rich_help_panel=_OUTCOME
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary object on stdout.", rich_help_panel=_OUTCOME)
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option(help="debug, info, warning or error: log on stderr.", rich_help_panel=_OUTCOME),
    ] = None,
    with_traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where a failure happened.", rich_help_panel=_OUTCOME)
    ] = False,
) -> int:
    """Generate a result for every request of a file.

    However it was stopped (Ctrl-C, kill -9, a full disk), the same command again finishes what is missing and
    writes no line twice. A wrong line becomes an error line with its line number; the rest runs.
    """
    if restart and force:
        raise typer.BadParameter("--restart and --force exclude each other")
    if as_json and str(output) == "-":
        raise typer.BadParameter("--json and -o - both want standard output")
    if output.exists() and requests.exists() and output.samefile(requests):
        raise typer.BadParameter("the results would overwrite the requests", param_hint="--output")
    if log_level is not None and log_level not in _LOG_LEVELS:
        raise typer.BadParameter(
            f"{log_level!r} is not one of {', '.join(_LOG_LEVELS)}", param_hint="--log-level"
        )
    from batchgen.requests.command import RunCommand, execute

    engine = {
        "model": model,
        "dtype": dtype,
        "device": device,
        "page_size": page_size,
        "gpu_kv_pages": gpu_pages,
        "host_kv_pages": host_pages,
        "max_batch_size": max_batch,
        "max_tokens_default": max_tokens,
        "row_exact": row_exact,
        "threads": threads,
        "seed": seed,
        "cuda_graphs": not no_cuda_graphs,
        "host_kv_watermark": host_kv_watermark,
        "policy": policy,
        "spill_dir": None if spill_dir is None else str(spill_dir),
        "spill_bytes": None if spill_bytes is None else _bytes(spill_bytes),
        "adaptive_sampling": adaptive_sampling,
        "attention": attention,
        "attention_mode": attention_mode,
        "flashinfer_objects": None if flashinfer_objects is None else str(flashinfer_objects),
    }
    command = RunCommand(
        requests=requests,
        output=str(output),
        engine=engine,
        ignore_model=ignore_model,
        restart=restart,
        force=force,
        strict=strict,
        progress=progress,
        as_json=as_json,
        with_traceback=with_traceback,
        log_level=log_level,
    )
    return execute(command)


@app.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
def bench(context: typer.Context) -> int:
    """Measure decode throughput; ``batchgen bench --help`` has its options."""
    from batchgen.bench import main as bench_main

    return bench_main(context.args)


def _bytes(text: str) -> int:
    """512, 512K, 64M, 8G: units of 1024."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in _UNITS else (text, "")
    if not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is not a size such as 512M or 8G", param_hint="--spill-bytes")
    return int(number) * _UNITS[unit]


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script: the exit code of the command, 64 for wrong usage."""
    try:
        code = app(args=arguments, prog_name="batchgen", standalone_mode=False)
    except _PARSER_ERROR as error:
        where = error.ctx.command_path if error.ctx else "batchgen"
        print(f"{where}: {error.format_message()} Try '{where} --help'.", file=sys.stderr)
        return EXIT_USAGE
    return int(code or 0)
