"""The command line of `shadow`. Parsing imports neither torch nor batchgen."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from reports.model import Fact

USAGE = 64


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(USAGE)


def _tree(text: str) -> Path:
    path = Path(text)
    if not (path / "batchgen" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text} is not a source tree: it holds no batchgen/__init__.py")
    return path.resolve()


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path.resolve()


def _positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def parser() -> argparse.ArgumentParser:
    top = _Parser(
        prog="shadow",
        description="Runs two versions of a worker on the same requests and says where they part.",
        epilog="Exit codes: 0 all compared and equal; 1 divergence; 2 the harness itself failed; "
        "3 coverage short (some kind of value was never compared); 64 usage.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    compare = commands.add_parser(
        "compare",
        help="two source trees, same requests, step by step",
        description="Runs the worker of two source trees in lockstep on the same requests and compares, step "
        "by step: logits, tokens, page tables, KV content, boundary decisions, sequence fields, results.",
    )
    compare.add_argument("--legacy", required=True, type=_tree, metavar="TREE", help="holds batchgen/")
    compare.add_argument("--candidate", required=True, type=_tree, metavar="TREE", help="holds batchgen/")
    compare.add_argument("--requests", required=True, type=_file, metavar="FILE", help="OpenAI batch format")
    compare.add_argument("--model", metavar="M", help="name or path (default: the engine's)")
    compare.add_argument("--dtype", choices=("float32", "bfloat16", "float16"))
    compare.add_argument("--device", metavar="D", help="auto, cpu, cuda (default: the engine's)")
    compare.add_argument("--page-size", type=_positive, metavar="N", help="tokens per page")
    compare.add_argument("--gpu-pages", type=_positive, metavar="N", help="pages of the GPU pool")
    compare.add_argument("--host-pages", type=_positive, metavar="N", help="pages of the host pool")
    compare.add_argument("--max-batch", type=_positive, metavar="N", help="rows decoded at once")
    compare.add_argument("--threads", type=_positive, metavar="N", help="per side (default: half the cores)")
    compare.add_argument(
        "--timeout", type=_positive, default=300, metavar="S", help="seconds without a step (start: tenfold)"
    )
    compare.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    compare.add_argument("--junit", type=Path, metavar="FILE", help="also write it as JUnit XML")
    compare.add_argument("--markdown", type=Path, metavar="FILE", help="also write it as Markdown")
    return top


def _options(arguments: argparse.Namespace) -> dict[str, object]:
    fields = {
        "model": arguments.model,
        "dtype": arguments.dtype,
        "device": arguments.device,
        "page_size": arguments.page_size,
        "gpu_kv_pages": arguments.gpu_pages,
        "host_kv_pages": arguments.host_pages,
        "max_batch_size": arguments.max_batch,
    }
    return {name: value for name, value in fields.items() if value is not None}


def compare(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from reports import ReportWriteError, to_json, to_junit, to_markdown, write_report
    from reports.terminal import print_report
    from shadow.compare import compare_trees
    from shadow.verdict import Exit

    errors = Console(stderr=True)
    threads = arguments.threads or max(1, (os.cpu_count() or 2) // 2)
    options = _options(arguments)
    started = time.monotonic()
    with errors.status("starting both sides …") as status:

        def on_step(step: int, differing: int) -> None:
            rate = (step + 1) / (time.monotonic() - started)
            found = f"{differing:,} values differ" if differing else "all equal so far"
            status.update(f"decode step {step} ({rate:.1f}/s), {found}")

        report = compare_trees(
            arguments.legacy,
            arguments.candidate,
            arguments.requests,
            options,
            threads=threads,
            timeout=arguments.timeout,
            on_step=on_step,
            facts=tuple(Fact(name, str(value)) for name, value in options.items()),
        )
    failed = report.verdict.exit_code == Exit.HARNESS
    print_report(report, Console(), first="What went wrong" if failed else "First divergence")
    try:
        for path, render in ((arguments.json, to_json), (arguments.junit, to_junit)):
            if path is not None:
                write_report(path, render(report))
        if arguments.markdown is not None:
            write_report(arguments.markdown, to_markdown(report))
    except ReportWriteError as error:
        print(f"shadow: {error}", file=sys.stderr)
        return int(Exit.HARNESS)
    return report.verdict.exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code (usage errors leave through SystemExit 64)."""
    arguments = parser().parse_args(argv)
    try:
        return compare(arguments)
    except KeyboardInterrupt:
        print("shadow: interrupted; both sides were stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
