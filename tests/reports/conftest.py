"""A headless Chromium for the tests that look at the page: $CHROMIUM, or whichever is on the PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reports import Report
from reports.html import to_html

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def unavailable(reason: str) -> None:
    """Skips; where a browser is required (CI), its absence is a failure."""
    if os.environ.get("REQUIRE_BROWSER") == "1":
        pytest.fail(f"{reason}, and REQUIRE_BROWSER=1")
    pytest.skip(reason)


# Per module, not per session: while it lives, playwright keeps an event loop running in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = chromium()
    if path is None:
        unavailable(f"no Chromium: set CHROMIUM, or install one of {', '.join(NAMES)}")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("playwright is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path)
        yield started
        started.close()


class Look:
    """A page as it is shown, with whatever it complained about or asked the network for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: (self.complaints.append("a dialog"), dialog.dismiss()))

    def colour(self, selector: str, what: str = "color") -> str:
        value: str = self.page.locator(selector).first.evaluate(f"e => getComputedStyle(e)['{what}']")
        return value


Opener = Callable[..., Look]


@pytest.fixture
def look_at(browser: Any, tmp_path: Path) -> Iterator[Opener]:
    contexts = []

    def open_page(
        report: Report, width: int = 1280, height: int = 900, scheme: str = "light", **options: Any
    ) -> Look:
        file = tmp_path / f"report-{len(contexts)}.html"
        file.write_text(to_html(report, first="First divergence"), encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True, **options
        )
        contexts.append(context)
        look = Look(context.new_page())
        look.page.goto(file.as_uri())
        return look

    yield open_page
    for context in contexts:
        context.close()
