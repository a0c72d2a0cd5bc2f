"""Draws page maps: a grid of pages per frame, a colour and a letter for each owner, the guilty page ringed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports.fallback import page_rows
from reports.html.heat import Box, grid, runs
from reports.pictures import FREE, MIXED, SHARED, PageMap
from reports.text import visible

SIZE = 16
_SIGN = {FREE: "", MIXED: "·", SHARED: "!"}
_NAME = {FREE: "free", MIXED: "several owners", SHARED: "owned twice"}
_LOOK = {FREE: "free", MIXED: "mixed", SHARED: "shared"}


@dataclass(frozen=True)
class Sign:
    """The cells of one owner: their path in units of cells, and a letter at each place."""

    css: str
    letter: str
    path: str
    xs: str
    ys: str
    letters: str


@dataclass(frozen=True)
class FrameDrawing:
    name: str
    signs: tuple[Sign, ...]
    changed: str  # corners of the cells that the frame before showed otherwise
    data: dict[str, Any]
    summary: str


@dataclass(frozen=True)
class Entry:
    css: str
    letter: str
    name: str


@dataclass(frozen=True)
class PagesDrawing:
    title: str
    summary: str
    binning: str
    width: int
    height: int
    lines: str
    frames: tuple[FrameDrawing, ...]
    legend: tuple[Entry, ...]
    mark: Box | None
    mark_text: str
    table: tuple[tuple[str, ...], ...]
    picture: PageMap


def _look(state: int) -> str:
    return _LOOK.get(state, f"o{state}")


def _letter(state: int) -> str:
    return _SIGN.get(state, chr(ord("A") + max(0, state)))


def _signs(cells: Sequence[int], columns: int) -> tuple[Sign, ...]:
    looks = [[_look(state) for state in cells[i : i + columns]] for i in range(0, len(cells), columns)]
    paths = runs(looks)
    out = []
    for state in sorted(set(cells)):
        at = [divmod(i, columns) for i, cell in enumerate(cells) if cell == state]
        letter = _letter(state)
        xs = " ".join(str(x * SIZE + SIZE // 2) for _, x in at) if letter else ""
        ys = " ".join(str(y * SIZE + 12) for y, _ in at) if letter else ""
        out.append(Sign(_look(state), letter, paths[_look(state)], xs, ys, letter * len(at)))
    return tuple(out)


def _changed(cells: Sequence[int], before: Sequence[int] | None, columns: int) -> str:
    if before is None:
        return ""
    places = [divmod(i, columns) for i, cell in enumerate(cells) if cell != before[i]]
    return "".join(f"M{(x + 1) * SIZE - 6} {y * SIZE}h6v6z" for y, x in places)


def _which(picture: PageMap) -> str:
    last = picture.first + picture.pages - 1
    return f"pages {picture.first} to {last}; " if picture.first else f"{picture.pages:,} pages; "


def draw_pages(picture: PageMap) -> PagesDrawing:
    """One grid a frame, all of one size; the legend names whoever appears in any of them."""
    cells = -(-picture.pages // picture.per_cell)
    columns = 8 if cells <= 32 else 16 if cells <= 128 else 32
    rows = max(1, -(-cells // columns))
    present = {state for frame in picture.frames for state in frame.cells}
    order = [*range(len(picture.owners)), SHARED, MIXED, FREE]
    names = [*map(visible, picture.owners)]
    legend = tuple(
        Entry(_look(state), _letter(state), picture.owners[state] if state >= 0 else _NAME[state])
        for state in order
        if state in present
    )
    mark, spot = None, None
    if picture.marked is not None:
        y, x = divmod((picture.marked - picture.first) // picture.per_cell, columns)
        mark, spot = Box(x * SIZE, y * SIZE, SIZE, SIZE), [x, y]
    frames, before = [], None
    for frame in picture.frames:
        taken = picture.pages - frame.free
        summary = f"{taken:,} of {picture.pages:,} pages owned"
        summary += f", {frame.shared:,} owned twice" if frame.shared else ""
        data = {
            "area": [0, 0, columns * SIZE, rows * SIZE],
            "size": [columns, rows],
            "start": spot,
            "owners": names,
            "cells": list(frame.cells),
            "pages": [picture.first, picture.pages, picture.per_cell],
        }
        signs, changed = _signs(frame.cells, columns), _changed(frame.cells, before, columns)
        frames.append(FrameDrawing(frame.name, signs, changed, data, summary))
        before = frame.cells
    mark_text = ""
    if picture.marked is not None:
        mark_text = f"page {picture.marked}" + (f": {picture.note}" if picture.note else "")
    return PagesDrawing(
        title=picture.title,
        summary=_which(picture) + "; ".join(f"{frame.name}: {frame.summary}" for frame in frames),
        binning=f"Binned: {picture.per_cell} pages a cell. Numbers by owner are exact."
        if picture.per_cell > 1
        else "",
        width=columns * SIZE,
        height=rows * SIZE,
        lines=grid(rows, columns),
        frames=tuple(frames),
        legend=legend,
        mark=mark,
        mark_text=mark_text,
        table=tuple(page_rows(picture)),
        picture=picture,
    )
