"""Reading a GGUF file: header, metadata and quantised tensors as bytes.

The header is parsed here instead of by ``gguf.GGUFReader``, which needs five seconds for the 98,000
strings of a 49k vocabulary and reports a truncated file as an index error inside numpy.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from batchgen.models.dequant import dequantize_rows
from batchgen.models.errors import ModelLoadError

__all__ = ["GGUFFile", "GGUFTensor"]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)


@dataclass(frozen=True)
class GGUFTensor:
    """``shape`` in torch order; ``offset`` and ``nbytes`` in the file."""

    name: str
    shape: tuple[int, ...]
    type: gguf.GGMLQuantizationType
    offset: int
    nbytes: int


class GGUFFile:
    """A memory-mapped file whose header has been checked: every tensor lies inside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as handle:
                self._data: mmap.mmap | bytes = (
                    mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_COPY) if path.stat().st_size else b""
                )
        except OSError as error:
            raise ModelLoadError(f"{path}: cannot be read: {error.strerror or error}") from error
        if self._data[:4] != b"GGUF":
            raise ModelLoadError(f"{path}: not a GGUF file (it starts with {self._data[:4]!r})")
        header = _Header(self._data, path)
        version = header.scalar("I")
        if version not in _VERSIONS:
            raise ModelLoadError(f"{path}: GGUF version {version} is not supported (versions 2 and 3 are)")
        tensor_count, pair_count = header.scalar("Q"), header.scalar("Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = header.string()
            self.metadata[key] = header.value(header.scalar("I"))
        infos = [self._tensor_info(header) for _ in range(tensor_count)]
        align = self.metadata.get("general.alignment", 32)
        base = -(-header.position // align) * align
        self.tensors = {info.name: self._placed(info, base) for info in infos}

    def _tensor_info(self, header: _Header) -> GGUFTensor:
        name = header.string()
        shape = tuple(header.scalar("Q") for _ in range(header.scalar("I")))[::-1]
        code, offset = header.scalar("I"), header.scalar("Q")
        try:
            kind = gguf.GGMLQuantizationType(code)
        except ValueError:
            raise ModelLoadError(f"{self.path}: tensor {name} has the unknown type {code}") from None
        block, size = gguf.GGML_QUANT_SIZES[kind]
        if not shape or shape[-1] % block:
            raise ModelLoadError(
                f"{self.path}: tensor {name} has shape {list(shape)}, not whole blocks of {kind.name}"
            )
        elements = 1
        for length in shape:
            elements *= length
        return GGUFTensor(name, shape, kind, offset, elements // block * size)

    def _placed(self, info: GGUFTensor, base: int) -> GGUFTensor:
        end = base + info.offset + info.nbytes
        if end > len(self._data):
            raise ModelLoadError(
                f"{self.path}: truncated: tensor {info.name} ends at byte {end}, the file has "
                f"{len(self._data)}; download it again"
            )
        return GGUFTensor(info.name, info.shape, info.type, base + info.offset, info.nbytes)

    def copy_into(self, name: str, out: Tensor, reorder: Callable[[Tensor], Tensor] | None = None) -> None:
        """Dequantise ``name`` into ``out``; ``reorder`` permutes its rows [rows, bytes] first."""
        info = self.tensors[name]
        raw = np.frombuffer(self._data, dtype=np.uint8, count=info.nbytes, offset=info.offset)
        rows = torch.from_numpy(raw).view(out.numel() // info.shape[-1], -1)
        dequantize_rows(rows if reorder is None else reorder(rows), info.type, out)


class _Header:
    """A cursor over the header; running past the end is a truncated file."""

    def __init__(self, data: mmap.mmap | bytes, path: Path) -> None:
        self._data, self._path = data, path
        self.position = 0
        self._take(4)

    def _take(self, size: int) -> int:
        start = self.position
        if size > len(self._data) - start:
            raise ModelLoadError(
                f"{self._path}: truncated in its header, at byte {start} of {len(self._data)}; download it again"
            )
        self.position += size
        return start

    def scalar(self, code: str) -> Any:
        form = struct.Struct("<" + code)
        return form.unpack_from(self._data, self._take(form.size))[0]

    def string(self) -> str:
        size = self.scalar("Q")
        start = self._take(size)
        return self._data[start : start + size].decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(self.scalar("I"), self.scalar("Q"))
        raise ModelLoadError(f"{self._path}: metadata value of unknown type {kind}; the header is damaged")

    def _array(self, kind: int, count: int) -> list[Any]:
        if kind in _SCALARS:
            size = struct.calcsize("<" + _SCALARS[kind])
            start = self._take(count * size)
            return list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", self._data, start))
        if kind == _STRING:
            return self._strings(count)
        return [self.value(kind) for _ in range(count)]

    def _strings(self, count: int) -> list[str]:
        """`string` in one loop: a vocabulary and its merges are most of the time that a header takes."""
        data, position, size = self._data, self.position, len(self._data)
        length_at = struct.Struct("<Q").unpack_from
        texts: list[str] = []
        for _ in range(count):
            start = position + 8
            end = start + length_at(data, position)[0] if start <= size else size + 1
            if end > size:
                self.position = position
                self._take(size)
            texts.append(data[start:end].decode("utf-8", errors="replace"))
            position = end
        self.position = position
        return texts
