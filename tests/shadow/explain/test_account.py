"""The account of a divergence: whose page it was, since when, and what contradicts that."""

from __future__ import annotations

from collections.abc import Iterable

from shadow.diff import compare_events
from shadow.explain import Narrator
from shadow.observation import Event, Key, Kind, Observed, Pages, Point
from shadow.tally import Tally

Pair = tuple[Event, Event]


def state(
    step: int,
    owned: dict[str, tuple[int, ...]],
    live: dict[str, tuple[int, ...]] | None = None,
    status: dict[str, str] | None = None,
    **more: Observed,
) -> Event:
    values: dict[Key, Observed] = {}
    for label, pages in owned.items():
        values[Key(Kind.PAGE_TABLE, label, "primary.owned_pages")] = Pages("primary", pages)
    for label, pages in (owned if live is None else live).items():
        values[Key(Kind.PAGE_TABLE, label, "primary.live_pages")] = Pages("primary", pages)
    for label, name in (status or {}).items():
        values[Key(Kind.SEQUENCE, label, "status")] = name
    for name, value in more.items():
        values[Key(Kind.TOKENS, "a", name)] = value
    return Event(Point.DECODE, step, values)


def told(pairs: Iterable[Pair]) -> str:
    narrator, tally = Narrator(), Tally()
    for control, candidate in pairs:
        narrator.watch(control, candidate)
        tally.add(control.point, compare_events(control, candidate))
        assert narrator.note(tally) is False
    return "\n".join(narrator.account(tally))


def test_a_row_that_names_a_page_of_somebody_else_is_a_contradiction_with_its_history() -> None:
    before = state(3, {"a": (17,)}, status={"a": "IN_DECODE"})
    freed = state(4, {"b": (17,), "a": (5,)}, status={"a": "COMPLETED"})
    stale = state(4, {"b": (17,), "a": (5,)}, {"b": (17,), "a": (17,)}, {"a": "COMPLETED"})
    text = told([(before, before), (freed, stale)])
    assert "page 17 (primary) was given to a by step 3, went from a to b by step 4" in text
    assert (
        "At step 4 the candidate's row of a still names page 17, which belongs to b: a contradiction." in text
    )
    assert text.startswith("Everything that was compared in steps 0 to 3 was equal.")


def test_pages_that_two_sides_hand_out_otherwise_are_told_of_both() -> None:
    ours, theirs = state(0, {"a": (1, 2)}), state(0, {"a": (1, 3)})
    text = told([(ours, theirs)])
    assert "On the legacy side page 3 (primary) was never seen with an owner." in text
    assert "On the candidate side page 3 (primary) was given to a by step 0." in text
    assert text.startswith("Nothing was equal before it")


def test_a_page_that_went_back_is_told_with_what_its_owner_was_then() -> None:
    first = state(0, {"a": (1,), "b": (2,)}, status={"a": "IN_DECODE"})
    freed = state(5, {"b": (2,)}, status={"a": "ON_HOLD"})
    kept = state(5, {"b": (2,), "a": (1,)}, status={"a": "ON_HOLD"})
    text = told([(first, first), (freed, kept)])
    assert "On the legacy side page 1" not in text  # the finding names no page of the legacy: it has none
    assert "reached nothing else" in text


def test_what_a_divergence_reached_is_told_in_the_order_of_steps() -> None:
    ours, theirs = state(0, {"a": (1, 2)}), state(0, {"a": (1, 3)})
    later = [state(2, {"a": (1, 2)}, token=token) for token in (7, 8)]
    text = told([(ours, theirs), (later[0], later[1])])
    assert "It then reached: tokens (step 2, a)." in text
    assert "No token changed" not in text


def test_equal_tokens_are_no_comfort() -> None:
    ours, theirs = state(0, {"a": (1, 2)}, token=7), state(0, {"a": (1, 3)}, token=7)
    assert "No token changed: text equality would not have seen it." in told([(ours, theirs)])


def test_a_run_without_a_divergence_has_no_account() -> None:
    same = state(0, {"a": (1,)})
    assert told([(same, same)]) == ""
