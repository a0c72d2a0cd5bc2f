"""Reports to look at: one with every kind of picture, and ones of awkward content or size."""

from __future__ import annotations

from collections.abc import Mapping

from reports import Band, Bar, Bars, Check, Fact, Finding, Level, Report, Status, Table, Verdict
from reports.binning import heat_map, neighbours, page_map, series, side_by_side

LAYERS, STEPS, STEP, LAYER, PAGE = 30, 64, 14, 3, 17

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)><b>bold</b> &amp; \"'`{{7*7}} "
    "\x00\x1b[31mred\x1b[0m \u202eltr\u202c \ud800 \u200b [red]x[/red] ![i](http://example.invalid/i.png) |"
)


def differing(layers: int, steps: int) -> dict[tuple[int, int], int]:
    return {
        (layer, step): 1 + (layer * 7 + step * 3) % 13
        for step in range(STEP + 1, steps)
        for layer in range(LAYER, layers)
        if (layer * 31 + step * 17) % 4
    } | {(LAYER, STEP): 1}


def owners(pages: int, sequences: int) -> dict[int, tuple[str, ...]]:
    return {page: (f"b1-{page * sequences // pages}",) for page in range(pages) if page % 9 != 8}


def errors(steps: int) -> list[float | None]:
    before = [0.0 if step % 5 == 3 else 2e-7 * (1 + step % 3) for step in range(STEP)]
    return [*before, *(10 ** min(0.0, -5 + (step - STEP) * 0.08) for step in range(STEP, steps))]


def finding(step: int, layer: int, value: str = "all zero") -> Finding:
    where = (Fact("step", str(step)), Fact("sequence", "b1-7"), Fact("layer", str(layer)))
    return Finding(
        "kv",
        Level.ERROR,
        "the content of live KV pages differs at decode, positions 32 to 47",
        (*where, Fact("field", "host.k.page[2]")),
        "#9f2c6b1be07d4411",
        value,
        "compare the load of the two handlers",
    )


def pictures(layers: int = LAYERS, steps: int = STEPS, pages: int = 128, sequences: int = 9) -> tuple:  # type: ignore[type-arg]
    before = owners(pages, sequences)
    after: Mapping[int, tuple[str, ...]] = {
        **before,
        PAGE: (before[PAGE - 1][0], "b1-7"),
        40 * (pages // 64): (),
    }
    maps: list[tuple[str, int | range]] = [("Who owns which page", pages)]
    if pages > 1024:
        maps.append(("Around page 17", neighbours(PAGE, pages)))
    return (
        heat_map(
            "KV content: layer by step",
            "live pages that differ",
            ("layer", layers),
            ("decode step", steps),
            differing(layers, steps),
            marked=(LAYER, STEP),
            note="first divergence",
            compared=((layer, step) for layer in range(layers) for step in range(steps - 4)),
        ),
        series(
            "Logits error",
            "decode step",
            "relative L2",
            {"worst row": errors(steps), "median row": [0.3 * (value or 0.0) for value in errors(steps)]},
            band=Band("noise floor (A/A, n = 240)", 0.0, 2.1e-6),
            logarithmic=True,
            marked=STEP,
            note="first divergence",
        ),
        *(
            page_map(
                title,
                shown,
                {"before": before, "after": after},
                marked=PAGE,
                note="given to b1-7 at step 14, still in another table",
            )
            for title, shown in maps
        ),
        side_by_side(
            "Boundary plan, step 14",
            ("legacy", "candidate"),
            [
                ("plan.evict[0]", "'b1-2'", "'b1-2'"),
                ("plan.load[0].pages", "(17, 18, 19, 20)", "(17, 18, 19)"),
                ("plan.resume[1]", "'b1-9'", None),
            ],
        ),
        Bars(
            "Time of both paths",
            "ms/step",
            ("forward", "observing", "waiting"),
            (Bar("legacy", (41.2, 6.1, 0.4)), Bar("candidate", (40.8, 6.3, 3.2))),
        ),
    )


def diverged(**sizes: int) -> Report:
    return Report(
        "shadow compare",
        Verdict(Status.FAIL, 1, "Diverged at step 14, sequence b1-7, layer 3 (4,312 values differ)"),
        facts=(Fact("legacy", "trees/main"), Fact("candidate", "trees/slice-5"), Fact("model", "tiny")),
        checks=(
            Check("page_table", Status.PASS, 12_345),
            Check("kv", Status.FAIL, 49_380, "3,980 differ, the first at step 14"),
            Check("boundary", Status.SHORT, 0, "no page boundary was reached"),
        ),
        findings=tuple(finding(STEP + i, LAYER + i) for i in range(50)),
        total_findings=4312,
        tables=(Table("Power", ("fault", "seen from"), (("one page swapped", "1 page"),)),),
        pictures=pictures(**sizes),
        seconds=12.4,
        sides=("legacy", "candidate"),
    )


def equal() -> Report:
    checks = (Check("kv", Status.PASS, 49_380), Check("logits", Status.PASS, 4096))
    verdict = Verdict(Status.PASS, 0, "Equal: 53,476 values over 64 decode steps")
    return Report("shadow compare", verdict, checks=checks, seconds=3.1)


def hostile(text: str = HOSTILE) -> Report:
    """`text` wherever a report has text."""
    bad = Finding(text, Level.WARNING, text, (Fact(text, text),), text, text + "2", text)
    return Report(
        text,
        Verdict(Status.ERROR, 2, text),
        facts=(Fact(text, text),),
        checks=(Check(text, Status.FAIL, 3, text),),
        findings=(bad, bad),
        total_findings=2,
        tables=(Table(text, (text, text), ((text, text),)),),
        pictures=(
            heat_map(text, text, (text, [text, text]), (text, [text]), {(1, 0): 3}, marked=(1, 0), note=text),
            series(
                text,
                text,
                text,
                {text: [0.5, None, float("nan")]},
                band=Band(text, 0.0, 1.0),
                marked=1,
                note=text,
            ),
            page_map(text, 20, {text: {3: (text,)}, "after": {}}, marked=3, note=text),
            side_by_side(text, (text, text), [(text, text, text + "2"), (text, None, text)]),
            Bars(text, text, (text,), (Bar(text, (1.5,)),)),
        ),
        sides=(text, text),
    )


def everything_differs(
    layers: int = 60, steps: int = 10_000, pages: int = 100_000, width: int = 20_000
) -> Report:
    """A long run of which nothing is equal, with values of a size that no page could hold."""
    return Report(
        "shadow compare",
        Verdict(Status.FAIL, 1, "Diverged at step 0 (999,999,999 values differ)" + "!" * width),
        facts=tuple(Fact(f"fact {i}", "f" * width) for i in range(100)),
        checks=tuple(Check(f"check {i}", Status.FAIL, 10**9, "d" * width) for i in range(100)),
        findings=tuple(finding(i, i % layers, "v" * width) for i in range(1000)),
        total_findings=999_999_999,
        tables=tuple(
            Table(
                f"table {i}", tuple(f"c{j}" for j in range(40)), tuple(("x" * 300,) * 40 for _ in range(300))
            )
            for i in range(4)
        ),
        pictures=(
            *(
                heat_map(
                    f"Heat {turn}",
                    "pages that differ",
                    ("layer", layers),
                    ("decode step", steps),
                    (
                        ((row, column), 1 + (row * 7919 + column * 104729 + turn) % 900)
                        for row in range(layers)
                        for column in range(0, steps, 7)
                    ),
                    marked=(2, steps // 2),
                )
                for turn in range(2)
            ),
            *pictures(steps=steps, pages=pages, sequences=5000)[1:4],
            side_by_side(
                "Plan", ("a", "b"), [(f"field[{i}]", "l" * width, "l" * width + "!") for i in range(999)]
            ),
        ),
        seconds=3600.0,
        sides=("legacy", "candidate"),
    )
