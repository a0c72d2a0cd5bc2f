"""What the commands of `shadow` share: argument types, and the options that choose engine and requests."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

USAGE = 64


class Parser(argparse.ArgumentParser):
    """Usage errors exit with 64, in one line after the usage."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(USAGE)


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path.resolve()


def positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def layers(text: str) -> tuple[int, ...]:
    """ "0,3,5"; each at most once, ascending."""
    numbers = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of layers such as 0,3,5")
    return tuple(sorted({int(part) for part in numbers}))


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Those that become fields of batchgen.engine.EngineOptions, see `engine_options`."""
    parser.add_argument("--model", metavar="M", help="name or path (default: the engine's)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--device", metavar="D", help="auto, cpu, cuda (default: the engine's)")
    parser.add_argument("--page-size", type=positive, metavar="N", help="tokens per page")
    parser.add_argument("--gpu-pages", type=positive, metavar="N", help="pages of the GPU pool")
    parser.add_argument("--host-pages", type=positive, metavar="N", help="pages of the host pool")
    parser.add_argument("--max-batch", type=positive, metavar="N", help="rows decoded at once")


def engine_options(arguments: argparse.Namespace) -> dict[str, object]:
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


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=positive, metavar="N", help="per side (default: half the cores)")
    parser.add_argument(
        "--timeout", type=positive, default=300, metavar="S", help="seconds without a step (start: tenfold)"
    )


def threads(arguments: argparse.Namespace) -> int:
    return arguments.threads or max(1, (os.cpu_count() or 2) // 2)


def add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write it as JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write it as Markdown")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also write it as one HTML file, with pictures"
    )
