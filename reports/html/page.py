"""Puts the page together: report, drawings, style and script in one file."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.fallback import prose
from reports.html.bars import draw_bars
from reports.html.graph import draw_graph
from reports.html.heat import draw_heat
from reports.html.limits import Limits, within
from reports.html.pages import draw_pages
from reports.html.values import against, shown
from reports.model import Report, Status
from reports.pictures import Bars, HeatMap, PageMap, Picture, Series, SideBySide
from reports.text import visible

MAX_BYTES = 1_000_000
"""No page is larger: a report that would be is shown with more left out."""

_LIMITS = (
    Limits(text=400, first=4000, findings=50, rows=100, columns=16, tables=24, pictures=16, named=60),
    Limits(text=120, first=1000, findings=20, rows=40, columns=10, tables=8, pictures=6, named=24),
    Limits(text=40, first=200, findings=5, rows=8, columns=6, tables=3, pictures=2, named=8),
)
_WORDS = {
    Status.PASS: "Pass",
    Status.FAIL: "Fail",
    Status.ERROR: "No verdict",
    Status.SHORT: "Too little seen",
}


def _draw(picture: Picture) -> tuple[str, Any]:
    match picture:
        case HeatMap():
            return "heat", draw_heat(picture)
        case Series():
            return "graph", draw_graph(picture)
        case PageMap():
            return "pages", draw_pages(picture)
        case SideBySide():
            return "sides", picture
        case Bars():
            return "bars", draw_bars(picture)


def _data(name: str) -> str:
    return files("reports.html").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(shown=shown, plain=visible, against=against)
    # The policy in the page's head allows exactly these two texts, and nothing from anywhere else.
    style, script = (re.sub(r"(?m)^\s+", "", _data(name)) for name in ("style.css", "script.js"))
    environment.globals.update(
        style=style, script=script, style_hash=_hash(style), script_hash=_hash(script), words=_WORDS
    )
    return environment


def to_html(report: Report, *, first: str = "First finding") -> str:
    """The whole page, at most MAX_BYTES; `first` is the heading of the first finding."""
    template = _environment().get_template("page.html.jinja")
    page = ""
    for limits in _LIMITS:
        shown_report = within(report, limits)
        drawings = [_draw(picture) for picture in shown_report.pictures]
        passed = sum(check.status is Status.PASS for check in report.checks)
        page = template.render(
            report=shown_report,
            prose=prose(shown_report),
            tables=[table for table in shown_report.tables if len(table.columns) != 1],
            drawings=drawings,
            first=first,
            passed=passed,
            checks=len(report.checks),
        )
        if len(page.encode()) <= MAX_BYTES:
            return page
    raise AssertionError("the smallest limits do not bound the page")
