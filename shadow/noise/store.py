"""`noise.json`: the bounds, what they are valid for, and what they cannot see. Refused where it does not fit."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

import msgspec

from shadow.noise.bound import Bound, Class
from shadow.noise.power import FaultScores

SCHEMA = 1
_TOOL = "shadow noise"


class NoiseFileError(RuntimeError):
    """The file cannot be used here; the message says why in one line."""


@dataclass(frozen=True)
class Conditions:
    """What the bounds were measured under: under any other they say nothing.

    `threads`: of the control side; `model` as `--model` names it.
    """

    model: str
    dtype: str
    device: str
    threads: int
    page_size: int
    torch_version: str


@dataclass(frozen=True)
class NoiseFloor:
    """`power`: how far known faults move the logits of this model (see shadow.power). One bound per class and kind."""

    conditions: Conditions
    bounds: tuple[Bound, ...]
    power: tuple[FaultScores, ...] = ()

    def __post_init__(self) -> None:
        keys = [(bound.pairing, bound.kind) for bound in self.bounds]
        twice = sorted({f"{pairing} {kind}" for pairing, kind in keys if keys.count((pairing, kind)) > 1})
        if twice:
            raise ValueError(f"two bounds for {', '.join(twice)}")

    def bound(self, pairing: Class, kind: str) -> Bound | None:
        """The bound measured for this kind in this class, None where none was."""
        return next((b for b in self.bounds if (b.pairing, b.kind) == (pairing, kind)), None)

    @property
    def classes(self) -> tuple[Class, ...]:
        return tuple(pairing for pairing in Class if any(bound.pairing is pairing for bound in self.bounds))


@dataclass(frozen=True)
class _File:
    tool: str
    schema: int
    floor: NoiseFloor


def save(path: Path, floor: NoiseFloor) -> None:
    """Writes the file whole or not at all. NoiseFileError where it cannot be written."""
    text = msgspec.json.format(msgspec.json.encode(_File(_TOOL, SCHEMA, floor)), indent=1) + b"\n"
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_bytes(text)
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise NoiseFileError(f"{path} cannot be written: {error.strerror}") from error


def load(path: Path) -> NoiseFloor:
    """Reads what `save` wrote. NoiseFileError: missing, not such a file, of another schema, damaged."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NoiseFileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        header = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoiseFileError(f"{path} is no file of `{_TOOL}`, or is damaged: {error}") from error
    if bytes(header.get("tool", b"")) != msgspec.json.encode(_TOOL):
        raise NoiseFileError(f"{path} is no file of `{_TOOL}`")
    if bytes(header.get("schema", b"")) != str(SCHEMA).encode():
        raise NoiseFileError(f"{path} has another schema than {SCHEMA}: measure again with `{_TOOL}`")
    try:
        return msgspec.json.decode(data, type=_File).floor
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoiseFileError(f"{path} is damaged: {error}") from error


def check_conditions(path: Path, floor: NoiseFloor, here: Conditions) -> None:
    """NoiseFileError that names what differs, unless the bounds were measured under the same conditions."""
    differing = [
        f"{field.name} {measured} (here {actual})"
        for field in fields(Conditions)
        if (measured := getattr(floor.conditions, field.name)) != (actual := getattr(here, field.name))
    ]
    if differing:
        raise NoiseFileError(
            f"{path} was measured with {', '.join(differing)}: it says nothing about this run; "
            f"measure again with `{_TOOL}`"
        )
