"""The page of `migrate burndown --html`, in a real browser, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.migration.test_cli import migrate
from tests.reports.conftest import browser

from .lives import commit, git
from .test_burndown import WORKER, long_history

__all__ = ["browser"]


@pytest.fixture(scope="module")
def page_file(stages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole life of a slice, with a version that does not parse and a subject that would like to be HTML."""
    import shutil

    root = shutil.copytree(stages["cleanup"], tmp_path_factory.mktemp("page") / "tree")
    good = (root / WORKER).read_text()
    (root / WORKER).write_text(good + "def broken(:\n")
    commit(root, "<script>alert(1)</script> & broken", 2)
    (root / WORKER).write_text(good)
    commit(root, "mended", 1)
    file = root.parent / "burndown.html"
    done = migrate("burndown", "--repo", root, "--html", file)
    assert done.returncode == 0, done.stderr
    return file


def opened(browser: Any, file: Path, width: int, scheme: str) -> tuple[Any, list[str]]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request",
        lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else None,
    )
    page.goto(file.as_uri())
    return page, said


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_phone_and_desktop_and_asks_for_nothing(
    browser: Any, page_file: Path, width: int, scheme: str
):
    page, said = opened(browser, page_file, width, scheme)
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    boxes = [panel.bounding_box() for panel in page.locator(".panels figure").all()]
    assert len(boxes) == 6
    assert len({box["x"] for box in boxes}) == (1 if width == 360 else 3)
    texts = page.locator(".panels svg text").evaluate_all(
        "all => all.map(t => [t.getBoundingClientRect(), t.closest('svg').getBoundingClientRect()])"
        ".every(([t, s]) => t.height >= 9 && t.left >= s.left - 1 && t.right <= s.right + 1)"
    )
    assert texts


def test_it_follows_the_colour_scheme(browser: Any, page_file: Path):
    grounds = []
    for scheme in ("light", "dark"):
        page, _ = opened(browser, page_file, 1280, scheme)
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]


def test_every_commit_has_a_point_and_a_row_and_a_gap_where_it_does_not_parse(browser: Any, page_file: Path):
    page, _ = opened(browser, page_file, 1280, "light")
    assert page.locator(".commits tbody tr").count() == 6
    assert page.locator(".commits tr.faulty").count() == 1
    methods = page.locator(".panels figure").nth(1)
    assert methods.locator(".hit").count() == 5
    assert methods.locator(".fault").count() == 1
    assert methods.locator(".line").last.get_attribute("d").count("M") == 2
    assert "1 of 6 commits hold a version that does not parse" in page.content()


def test_a_subject_is_text(browser: Any, page_file: Path):
    page, said = opened(browser, page_file, 1280, "light")
    assert page.locator("script").count() == 0
    assert "<script>alert(1)</script> & broken" in page.inner_text(".commits")
    assert said == []


def test_a_page_of_a_long_history_stays_small(tmp_path: Path):
    root = long_history(tmp_path / "long", 400, 30)
    file = tmp_path / "page.html"
    assert migrate("burndown", "worker.py", "--repo", root, "--html", file).returncode == 0
    assert file.stat().st_size < 500_000
    assert git(root, "rev-list", "--count", "HEAD").strip() == "400"
