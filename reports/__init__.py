"""One report model and its renderers, used by `migrate` and `shadow`.

A tool builds a `Report` (frozen values only) and hands it to a renderer. Imports neither torch nor
batchgen; the renderers that need rich (`reports.terminal`) and jinja2 (`reports.html`) are
imported on their own. `reports.binning` makes the pictures.
"""

from reports.json_report import SCHEMA, from_json, to_json
from reports.junit import to_junit
from reports.markdown import to_markdown
from reports.model import Check, Fact, Finding, Level, Report, Status, Table, Verdict
from reports.pictures import Band, Bar, Bars, HeatMap, PageMap, Picture, Series, SideBySide
from reports.write import ReportWriteError, write_report

__all__ = [
    "SCHEMA",
    "Band",
    "Bar",
    "Bars",
    "Check",
    "Fact",
    "Finding",
    "HeatMap",
    "Level",
    "PageMap",
    "Picture",
    "Report",
    "ReportWriteError",
    "Series",
    "SideBySide",
    "Status",
    "Table",
    "Verdict",
    "from_json",
    "to_json",
    "to_junit",
    "to_markdown",
    "write_report",
]
