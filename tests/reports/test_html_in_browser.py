"""What the HTML report shows, seen through a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from reports import Report, Table
from reports.binning import heat_map
from reports.html import to_html
from tests.reports.conftest import Look, Opener
from tests.reports.samples import HOSTILE, LAYER, STEP, diverged, equal, everything_differs, hostile

PHONE, DESKTOP = (390, 844), (1280, 900)
BOTH = pytest.mark.parametrize(("width", "height"), [PHONE, DESKTOP], ids=["phone", "desktop"])


def middle_of_cell(figure: Any, column: int, row: int) -> tuple[float, float]:
    place: list[float] = figure.locator("[data-cursor]").first.evaluate(
        """(box, [column, row]) => {
            const svg = box.querySelector("svg:not(.gutter)"), {area: [x, y, w, h], size: [columns, rows]} =
                JSON.parse(box.dataset.cursor);
            const point = new DOMPoint(x + (column + .5) / columns * w, y + (row + .5) / rows * h);
            const {x: left, y: top} = point.matrixTransform(svg.getScreenCTM());
            return [left, top];
        }""",
        [column, row],
    )
    return place[0], place[1]


def in_first_view(look: Look, text: str, height: int) -> bool:
    element = look.page.get_by_text(text, exact=False).first
    box = element.bounding_box()
    return element.is_visible() and box is not None and box["y"] >= 0 and box["y"] + box["height"] <= height


@BOTH
def test_verdict_and_first_divergence_are_seen_without_scrolling(
    look_at: Opener, width: int, height: int
) -> None:
    look = look_at(diverged(), width, height)
    heading = look.page.get_by_role("heading", level=1)
    assert heading.inner_text() == "Diverged at step 14, sequence b1-7, layer 3 (4,312 values differ)"
    for text in ("Diverged at step 14", "Fail", "First divergence", "#9f2c6b1be07d4411", "all zero"):
        assert in_first_view(look, text, height), text
    chips = look.page.locator("#first .where li").all_inner_texts()
    assert [" ".join(chip.split()) for chip in chips] == [
        "what kv",
        "step 14",
        "sequence b1-7",
        "layer 3",
        "field host.k.page[2]",
    ]


@BOTH
@pytest.mark.parametrize("make", [diverged, equal, hostile], ids=["diverged", "equal", "hostile"])
def test_the_page_itself_never_scrolls_sideways(look_at: Opener, make: type, width: int, height: int) -> None:
    look = look_at(make(), width, height)
    assert look.page.evaluate("document.documentElement.scrollWidth") <= width
    wide = look.page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, nav, .skip, svg, .hidden"))
            .filter(e => getComputedStyle(e).position !== "absolute")
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert wide == []


@pytest.mark.parametrize("make", [diverged, equal, hostile], ids=["diverged", "equal", "hostile"])
def test_nothing_is_asked_of_the_network_and_nothing_complains(look_at: Opener, make: type) -> None:
    look = look_at(make())
    look.page.wait_for_load_state("networkidle")
    assert [url for url in look.requests if not url.startswith("data:")] == [look.page.url]
    assert look.complaints == []


def test_the_page_forbids_itself_what_it_does_not_need(look_at: Opener) -> None:
    look = look_at(equal())
    refused = look.page.evaluate(
        """async () => {
            const refused = [];
            document.addEventListener("securitypolicyviolation", event => refused.push(event.effectiveDirective));
            const image = new Image(), script = document.createElement("script");
            image.src = "https://example.invalid/x.png";
            script.textContent = "window.ran = 1";
            document.body.append(image, script);
            await fetch("https://example.invalid/data").catch(() => {});
            await new Promise(done => setTimeout(done, 100));
            return refused.sort();
        }"""
    )
    assert refused == ["connect-src", "img-src", "script-src-elem"]
    assert look.page.evaluate("window.ran") is None


def test_the_heat_map_marks_the_cell_and_says_what_lies_there(look_at: Opener) -> None:
    look = look_at(diverged())
    figure = look.page.locator("figure").nth(0)
    assert "first divergence: decode step 14, layer 3" in figure.inner_text()
    assert figure.locator(".reading").inner_text() == "decode step 14, layer 3: 1 differ"
    ring = figure.locator("svg.heat .ring").bounding_box()
    look.page.mouse.move(*middle_of_cell(figure, 0, 0))
    assert figure.locator(".reading").inner_text() == "decode step 0, layer 0: equal"
    look.page.mouse.move(ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2)
    assert figure.locator(".reading").inner_text() == f"decode step {STEP}, layer {LAYER}: 1 differ"
    assert figure.locator(".mark title").first.text_content() == "first divergence: decode step 14, layer 3"


def test_a_pointer_and_the_arrow_keys_read_any_cell(look_at: Opener) -> None:
    look = look_at(diverged())
    figure = look.page.locator("figure").nth(0)
    reading = figure.locator(".reading")
    look.page.mouse.move(*middle_of_cell(figure, 30, 0))
    assert reading.inner_text() == "decode step 30, layer 0: equal"
    look.page.mouse.move(*middle_of_cell(figure, 63, 0))
    assert reading.inner_text() == "decode step 63, layer 0: not compared"
    figure.locator("[data-cursor]").focus()
    for key in ("ArrowLeft", "ArrowDown", "ArrowDown", "ArrowDown"):
        look.page.keyboard.press(key)
    assert re.fullmatch(r"decode step 62, layer 3: (equal|\d+ differ)", reading.inner_text())


def test_on_a_phone_the_marked_cell_is_scrolled_into_sight_beside_its_row_names(look_at: Opener) -> None:
    late = heat_map("t", "v", ("layer", 4), ("decode step", 64), {(3, 55): 1}, marked=(3, 55))
    look = look_at(replace(diverged(), pictures=(late,)), *PHONE)
    box = look.page.locator("figure [data-cursor]")
    seen, ring = box.bounding_box(), box.locator(".ring").bounding_box()
    gutter = box.locator(".gutter").bounding_box()
    assert gutter["x"] == pytest.approx(seen["x"], abs=1)
    assert (
        gutter["x"] + gutter["width"] <= ring["x"] and ring["x"] + ring["width"] <= seen["x"] + seen["width"]
    )
    assert look.page.evaluate("scrollY") == 0


def test_every_picture_says_in_words_what_it_shows(look_at: Opener) -> None:
    look = look_at(diverged())
    drawn = look.page.locator("figure svg[role=img]")
    labels = [
        drawn.nth(i).evaluate("e => e.ariaLabel ?? e.getAttribute('aria-labelledby')")
        for i in range(drawn.count())
    ]
    assert drawn.count() == 5 and all(labels)
    for label in labels:
        for name in label.split() if re.fullmatch(r"p\d+ p\d+-says", label) else []:
            assert look.page.locator(f"#{name}").inner_text()
    tables = look.page.locator("figure details")
    assert tables.count() == 4
    tables.nth(0).locator("summary").click()
    rows = tables.nth(0).locator("tbody tr").all_inner_texts()
    assert len(rows) == 30 and rows[0].split() == ["0", "0", "-", "0"]
    assert rows[LAYER].split()[2] == str(STEP)


def test_the_graph_draws_the_noise_band_and_reads_each_step(look_at: Opener) -> None:
    look = look_at(diverged())
    figure = look.page.locator("figure").nth(1)
    band, area = figure.locator("rect.band").first.bounding_box(), figure.locator("svg.graph").bounding_box()
    assert band["width"] > 700 and 20 < band["height"] < area["height"]
    assert "noise floor (A/A, n = 240)" in figure.locator("svg.graph").text_content()
    assert figure.locator(".reading").inner_text() == "decode step 14: worst row 1e-5; median row 3e-6"
    line = figure.locator(".c0 .line").first.bounding_box()
    assert line["y"] < band["y"] < line["y"] + line["height"]
    assert "first at 14" in figure.locator("details").text_content()


def test_the_page_map_shows_the_guilty_page_before_and_after(look_at: Opener) -> None:
    look = look_at(diverged())
    figure = look.page.locator("figure").nth(2)
    assert figure.locator(".frame").count() == figure.locator(".frame .ring").count() == 2
    assert "page 17: given to b1-7 at step 14" in figure.inner_text()
    assert figure.locator(".reading").all_inner_texts() == ["page 17: free", "page 17: owned twice"]
    assert figure.locator(".changed").count() >= 1
    owner = figure.locator(".letters .o0").first
    assert set(owner.text_content()) == {"A"}, "an owner has a letter as well as a colour"


def test_sentences_stand_between_the_first_finding_and_the_pictures(look_at: Opener) -> None:
    said = Table(
        "How it came about", ("",), (("Page 17 was given to b1-7.",), ("It then reached the logits.",))
    )
    look = look_at(replace(diverged(), tables=(said, *diverged().tables)))
    titles = look.page.locator("main h2").all_inner_texts()
    assert titles[:3] == ["First divergence", "How it came about", "KV content: layer by step"]
    assert look.page.locator(".prose li").all_inner_texts() == [row[0] for row in said.rows]


def test_plans_stand_side_by_side_with_what_differs_marked(look_at: Opener) -> None:
    look = look_at(diverged())
    figure = look.page.locator("figure").nth(3)
    rows = figure.locator("tbody tr")
    assert [rows.nth(i).is_visible() for i in range(3)] == [False, True, True]
    assert figure.locator("mark").all_inner_texts() == [", 20", ""]
    figure.get_by_label("only what differs").uncheck()
    assert rows.nth(0).is_visible() and "(absent)" in rows.nth(2).inner_text()


def test_dark_and_light_are_both_readable(look_at: Opener) -> None:
    light, dark = look_at(diverged()), look_at(diverged(), scheme="dark")
    for selector, what in (
        ("body", "backgroundColor"),
        ("h1", "color"),
        (".l0", "stroke"),
        (".l4", "stroke"),
        (".badge", "color"),
    ):
        assert light.colour(selector, what) != dark.colour(selector, what), selector
    for look in (light, dark):
        poor = look.page.evaluate(CONTRAST)
        assert poor == []


CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > .99) return colour;
    }
    return parse(getComputedStyle(document.body).backgroundColor);
  };
  const poor = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!text || element.closest("svg, script, .skip, .hidden")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.add(`${element.tagName}.${element.className}: ${ratio.toFixed(2)}`);
  }
  return [...poor];
}"""


def test_hostile_text_is_shown_as_text(look_at: Opener) -> None:
    look = look_at(hostile())
    assert look.page.locator("main img, main b >> text=bold, main script").count() == 0
    assert look.complaints == []
    heading = look.page.get_by_role("heading", level=1).inner_text()
    for part in (
        "<script>alert(1)</script>",
        "&amp;",
        "{{7*7}}",
        "\\x1b[31mred",
        "\\u202eltr",
        "\\ud800",
        "\\x00",
    ):
        assert part in heading
    assert "\u202e" not in look.page.content() and "\x1b" not in look.page.content()
    assert look.page.locator("figure").count() == 5
    assert HOSTILE[:20] in look.page.locator("svg.heat .axis").first.text_content()


def test_all_findings_are_filtered_by_what_is_typed(look_at: Opener) -> None:
    look = look_at(diverged())
    rows = look.page.locator("#findings-rows tbody tr:visible")
    assert rows.count() == 50 and "50 of 4,312 listed" in look.page.locator("#findings h2").inner_text()
    look.page.get_by_label("Filter").fill("step 20")
    assert rows.count() == 1 and "1 of 50 rows" in look.page.locator("#findings").inner_text()


def test_the_keyboard_reaches_the_parts_of_the_page(look_at: Opener) -> None:
    look = look_at(diverged())
    look.page.keyboard.press("Tab")
    assert look.page.evaluate("document.activeElement.textContent") == "Skip to the report"
    links = look.page.locator("nav a")
    for target in [links.nth(i).get_attribute("href") for i in range(links.count())]:
        assert look.page.locator(target).count() == 1, target
    outlined = look.page.evaluate(
        "() => { document.querySelector('[data-cursor]').focus({focusVisible: true});"
        " return getComputedStyle(document.activeElement).outlineStyle; }"
    )
    assert outlined == "solid"


def test_without_script_the_page_still_says_everything(look_at: Opener) -> None:
    look = look_at(diverged(), java_script_enabled=False)
    text = look.page.locator("body").inner_text()
    for part in (
        "Diverged at step 14",
        "first divergence: decode step 14, layer 3",
        "page 17: given to",
        "Circumstances",
    ):
        assert part in text
    assert look.page.locator("svg.heat .ring").is_visible()


def test_print_leaves_out_the_controls(look_at: Opener) -> None:
    look = look_at(diverged())
    look.page.emulate_media(media="print")
    assert not look.page.locator("nav").is_visible() and not look.page.get_by_label("Filter").is_visible()
    assert look.page.get_by_role("heading", level=1).is_visible()


@pytest.fixture(scope="module")
def enormous() -> Report:
    return everything_differs()


@BOTH
def test_a_report_of_any_size_opens(look_at: Opener, enormous: Report, width: int, height: int) -> None:
    assert len(to_html(enormous).encode()) < 1_000_000
    look = look_at(enormous, width, height)
    assert look.page.evaluate("document.documentElement.scrollWidth") <= width
    text = look.page.locator("#pictures").inner_text()
    assert "Binned: decode step by 105 (10,000 in all). Counts are exact." in text
    assert "first divergence (at decode step 14)" in text and "pages 0 to 97: " in text
    assert look.complaints == []
