"""Turns live values (dataclasses, enums, tensors, containers) into plain trees that can be sent and compared.

A snapshot, not a reference: what the worker does to the original later does not change the tree.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any


@dataclasses.dataclass(frozen=True)
class Record:
    """Named fields of a dataclass, a mapping or a tensor header; `name` is the type's bare name."""

    name: str
    fields: tuple[tuple[str, Plain], ...]


@dataclasses.dataclass(frozen=True)
class Opaque:
    """A value that has no plain form: only its type was seen, its content was not compared."""

    type_name: str


Plain = None | bool | int | float | str | bytes | tuple["Plain", ...] | Record | Opaque


def plain(value: Any, rename: Mapping[str, str] | None = None) -> Plain:
    """The plain form of `value`. Strings found in `rename` are replaced (uuids by labels), keys included.

    Lists become tuples; sets become sorted tuples; enums their name; tensors shape, dtype and a digest of
    their bytes, small integer ones their numbers.
    """
    names = rename or {}
    match value:
        case Enum():
            return value.name
        case str():
            return names.get(value, value)
        case None | bool() | int() | float() | bytes():
            return value
        case Mapping():
            items = ((str(plain(key, names)), plain(item, names)) for key, item in value.items())
            return Record("mapping", tuple(sorted(items, key=lambda pair: pair[0])))
        case Set():
            return tuple(sorted((plain(item, names) for item in value), key=repr))
        case list() | tuple():
            return tuple(plain(item, names) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return Record(
            type(value).__name__, tuple((f.name, plain(getattr(value, f.name), names)) for f in fields)
        )
    if hasattr(value, "detach") and hasattr(value, "numel"):
        return _tensor(value)
    return Opaque(type(value).__name__)


def _tensor(tensor: Any) -> Plain:
    dense = tensor.detach().cpu().contiguous()
    if dense.numel() <= 64 and not dense.is_floating_point():
        content = plain(dense.tolist())
    else:
        content = hashlib.sha256(dense.flatten().view(dtype=_byte_type()).numpy().tobytes()).hexdigest()
    header = (("dtype", str(dense.dtype)), ("shape", tuple(dense.shape)), ("content", content))
    return Record("Tensor", header)


def _byte_type() -> Any:
    import torch

    return torch.uint8
