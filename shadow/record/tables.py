"""What the frames of a record hold: tables of packed integer columns, and the hash of their definitions."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from shadow.record.lists import Lists


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The run. `chunk_events`: events a chunk; `content`: which values were kept; `settings`: tree bytes.

    `gpus_per_node` and `world_size` are the ranks' geometry; `facts` are circumstances for people.
    """

    chunk_events: int
    content: tuple[str, ...]
    gpus_per_node: int
    world_size: int
    settings: bytes
    facts: tuple[tuple[str, str], ...]


class Requests(msgspec.Struct, frozen=True, array_like=True):
    """The requests as the worker got them, in order, as tree bytes each."""

    requests: tuple[bytes, ...]


class Names(msgspec.Struct, frozen=True, array_like=True):
    """Additions to the dictionaries of strings, keys and shapes, numbered on from those before.

    A key is four integers (kind, sequence or -1, field: strings; layer or -1); `keys` has all kinds, then all
    sequences, and so on. A shape is what one sort of event looks like: its point (a string), how many keys,
    then those keys in order.
    """

    strings: tuple[bytes, ...]
    keys: bytes
    points: bytes
    sizes: bytes
    shape_keys: bytes


class Block(msgspec.Struct, frozen=True, array_like=True):
    """The events of one shape within a chunk: a matrix [keys, events] of integers, row by row.

    `classes` says what a row's integers are (an integer, a value's number, an array's number), `modes` how the
    row is written (see shadow.record.matrix). `first`, `slope` and `rest` are packed.
    """

    classes: bytes
    modes: bytes
    first: bytes
    slope: bytes
    rest: bytes


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive events. `steps` and `shapes` have one integer an event; `extras` the number of the value
    that holds the event's other fields plus one, 0 for none. `forms` has one integer a value: 0 for the next
    tree, n for the next list inside `around[n - 1]`."""

    first_event: int
    steps: bytes
    shapes: bytes
    extras: bytes
    blocks: tuple[Block, ...]
    forms: bytes
    trees: tuple[bytes, ...]
    around: tuple[bytes, ...]
    lists: Lists
    arrays: int


class Array(msgspec.Struct, frozen=True, array_like=True):
    """One array of an observed value: the first `kept` columns of array `base` of this chunk (-1: none), then
    `data`. `around`: tree bytes of (type, field, other fields)."""

    around: bytes
    dtype: str
    shape: tuple[int, ...]
    base: int
    kept: int
    data: bytes


class Arrays(msgspec.Struct, frozen=True, array_like=True):
    """The arrays of one event, in order; numbered on within the chunk whose frame follows."""

    event: int
    arrays: tuple[Array, ...]


class End(msgspec.Struct, frozen=True, array_like=True):
    """The run is over: how many events were recorded, and how it ended ("done", or what was raised)."""

    events: int
    outcome: str


_TABLES = (Header, Requests, Names, Block, Chunk, Lists, Array, Arrays, End)


def schema_hash() -> bytes:
    """16 bytes that change when a table gets another field, order or type."""
    text = "; ".join(
        f"{table.__name__}({', '.join(f'{f.name}: {f.type}' for f in msgspec.structs.fields(table))})"
        for table in _TABLES
    )
    return blake2b(text.encode(), digest_size=16).digest()
