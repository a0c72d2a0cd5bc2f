"""How a command hands over its report: the terminal, and the files that were asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from reports import Report


def deliver(report: Report, arguments: argparse.Namespace, *, first: str = "First finding") -> int:
    """Prints the report, writes its files, returns the exit code (2 if a file cannot be written)."""
    from rich.console import Console

    from reports import ReportWriteError, to_json, to_junit, to_markdown, write_report
    from reports.terminal import print_report
    from shadow.verdict import Exit

    print_report(report, Console(), first=first)
    wanted: list[tuple[Path | None, Callable[[Report], str]]]
    wanted = [(arguments.json, to_json), (arguments.junit, to_junit), (arguments.markdown, to_markdown)]
    if arguments.html is not None:
        from reports.html import to_html

        wanted.append((arguments.html, partial(to_html, first=first)))
    try:
        for path, render in wanted:
            if path is not None:
                write_report(path, render(report))
    except ReportWriteError as error:
        print(f"shadow: {error}", file=sys.stderr)
        return int(Exit.HARNESS)
    return report.verdict.exit_code
