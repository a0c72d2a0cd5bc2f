"""The history as one HTML file: charts as inline SVG, light and dark, no script, nothing loaded."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from migration.burndown.charts import HEIGHT, WIDTH, panels
from migration.burndown.history import History
from migration.burndown.rows import ROWS, Row, thin
from migration.burndown.subject import Subject
from migration.burndown.table import COLUMNS, cells, day, notes
from reports.text import visible


def page(subject: Subject, history: History, rows: Sequence[Row]) -> str:
    """The whole page; `rows` are not empty."""
    environment = Environment(
        loader=PackageLoader("migration.burndown"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = visible
    style = re.sub(r"(?m)^\s+", "", "".join(map(_style, ("reports.html", "migration.burndown"))))
    shown = [
        {
            "id": row.commit.id[:7],
            "day": day(row.commit.time),
            "cells": cells(row),
            "subject": row.commit.subject,
            "whole": row.whole,
        }
        for row in thin(rows, ROWS)
    ]
    return environment.get_template("page.html.jinja").render(
        subject=subject,
        headline=headline(subject, rows),
        total=len(rows),
        first=day(rows[0].commit.time),
        last=day(rows[-1].commit.time),
        notes=notes(history, rows),
        faulty=any(not row.whole for row in rows),
        panels=panels(rows),
        rows=shown,
        columns=COLUMNS,
        handlers=", ".join(subject.handlers) or "no module that is known",
        width=WIDTH,
        height=HEIGHT,
        style=style,
        style_hash="sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    )


def headline(subject: Subject, rows: Sequence[Row]) -> str:
    """What became of the class, in one sentence."""
    known = [row.monolith for row in rows if row.monolith]
    first, last = known[0].class_lines, known[-1].class_lines
    if not rows[-1].monolith and rows[-1].whole:
        last = 0
    if first == last or not first:
        return f"{subject.class_name} has {last:,} lines, as at the beginning"
    share = abs(first - last) / first
    change = f"{share:.0%} {'fewer' if last < first else 'more'} than the {first:,} at the beginning"
    return f"{subject.class_name} has {last:,} lines, {change}"


def _style(package: str) -> str:
    """The page looks like a report: the same sheet, and a few rules of its own."""
    return files(package).joinpath("templates", "style.css").read_text(encoding="utf-8")
