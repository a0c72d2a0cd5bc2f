"""What changed in place is seen, though only what changed is made anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchgen.sequence import SequenceEntry, SequenceStatus
from shadow.deltas import Decoder, Encoder
from shadow.observation import Event, Kind, Point
from shadow.observe.fields import Fields
from shadow.observe.names import Names
from shadow.observe.probe import Subject
from shadow.observe.sequences import Sequences


@dataclass(frozen=True)
class Parameters:
    temperature: float = 0.0
    stop: list[str] = field(default_factory=list)
    rest: tuple[object, ...] = ()


@dataclass(frozen=True)
class Settled:
    top_k: int = 1
    stop: tuple[str, ...] = ("x",)


def entry() -> SequenceEntry:
    made = SequenceEntry("u1", 1000, 20, 30, sampling_params=Parameters(rest=(["x"],)))
    made.text = Settled()  # type: ignore[assignment]
    made.input_ids = torch.arange(20)[None]
    made.decoded_tokens = torch.zeros(1, 30, dtype=torch.int64)
    made.decoded_length = 3
    made._lifespan_log = [SequenceStatus.QUEUEING]
    return made


def swapped(tensor: torch.Tensor, values: torch.Tensor) -> None:
    tensor.data = values


IN_PLACE: dict[str, Callable[[Any], object]] = {
    "a number of a tensor": lambda e: e.input_ids[0].__setitem__(0, 7),
    "a number of a tensor, past its version": lambda e: e.input_ids.numpy().__setitem__((0, 0), 8),
    "the storage of a tensor": lambda e: swapped(e.input_ids, torch.arange(1, 21)[None]),
    "the shape of a tensor": lambda e: e.input_ids.t_(),
    "the last decoded token": lambda e: e.decoded_tokens[0].__setitem__(2, 9),
    "how many tokens were decoded": lambda e: setattr(e, "decoded_length", 4),
    "an item of a list": lambda e: e._lifespan_log.__setitem__(0, SequenceStatus.IN_DECODE),
    "the length of a list": lambda e: e._lifespan_log.append(SequenceStatus.IN_DECODE),
    "a list in a frozen object": lambda e: e.sampling_params.stop.append("x"),
    "a list in a tuple in a frozen object": lambda e: e.sampling_params.rest[0].append("x"),
    "a field of a frozen object": lambda e: object.__setattr__(e.sampling_params, "temperature", 0.5),
    "a field of a frozen object of which nothing can change": lambda e: object.__setattr__(
        e.text, "top_k", 2
    ),
    "a large integer": lambda e: setattr(e, "global_idx", 1001),
    "a number for a truth value": lambda e: setattr(e, "eos_reached", 0),
    "a status": lambda e: setattr(e, "status", SequenceStatus.ON_HOLD),
    "a tensor for none": lambda e: setattr(e, "evicted_token_ids", torch.ones(1, dtype=torch.int64)),
}


class Watched:
    """The probe, and what the comparing side makes of what it is sent."""

    def __init__(self) -> None:
        self.probe, self._encoder, self._decoder = Sequences(), Encoder(), Decoder()
        worker = type("Worker", (), {"global_batch": None})()
        self._subject = Subject(worker, None, Names(worker), [])

    def see(self, *entries: SequenceEntry) -> dict[str, str]:
        self._subject.entries = list(entries)
        self._subject.memo.clear()
        event = Event(Point.DECODE, 0, self.probe.values(self._subject, Point.DECODE))
        arrived = self._decoder.decode(self._encoder.encode(event))
        return {f"{key.sequence}.{key.field}": repr(value) for key, value in arrived.values.items()}


@pytest.mark.parametrize("change", IN_PLACE.values(), ids=IN_PLACE)
def test_what_is_changed_in_place_is_seen(change: Callable[[Any], object]) -> None:
    watched, live = Watched(), entry()
    before = watched.see(live)
    assert watched.see(live) == before
    change(live)
    assert watched.see(live) == Watched().see(live) != before


@given(st.lists(st.sampled_from(sorted(IN_PLACE)), max_size=6))
def test_what_is_seen_is_what_one_would_see_who_had_seen_nothing_before(names: list[str]) -> None:
    watched, live, other = Watched(), entry(), entry()
    other.custom_id = "other"
    for name in names:
        if name == "the shape of a tensor" or live.input_ids is None or live.input_ids.shape[0] == 1:
            IN_PLACE[name](live)
        assert watched.see(live, other) == Watched().see(live, other)


def test_what_did_not_change_is_the_same_object() -> None:
    fields, live = Fields(Kind.SEQUENCE), entry()
    names = ("input_ids", "sampling_params", "text", "_lifespan_log", "status")
    first = dict(fields.of(live, "a", names, {}))
    again = fields.of(live, "a", names, {})
    settled = [key for key in first if key.field != "sampling_params"]  # it holds a list
    assert all(again[key] is first[key] for key in settled)


def test_an_entry_in_the_place_of_one_that_is_gone_is_read_anew() -> None:
    fields = Fields(Kind.SEQUENCE)
    for number in range(20):
        (value,) = fields.of(SequenceEntry(f"u{number}", number, 1, 1), "a", ("uuid",), {}).values()
        assert value == f"u{number}"
