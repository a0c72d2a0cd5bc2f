"""One report model and its renderers, used by `migrate` and `shadow`.

A tool builds a `Report` (frozen values only) and hands it to a renderer. Imports neither torch nor
batchgen; the terminal renderer, which needs rich, is imported on its own (`reports.terminal`).
"""

from reports.json_report import SCHEMA, from_json, to_json
from reports.junit import to_junit
from reports.markdown import to_markdown
from reports.model import Check, Fact, Finding, Level, Report, Status, Table, Verdict
from reports.write import ReportWriteError, write_report

__all__ = [
    "SCHEMA",
    "Check",
    "Fact",
    "Finding",
    "Level",
    "Report",
    "ReportWriteError",
    "Status",
    "Table",
    "Verdict",
    "from_json",
    "to_json",
    "to_junit",
    "to_markdown",
    "write_report",
]
