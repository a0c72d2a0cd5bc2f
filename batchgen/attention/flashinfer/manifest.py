"""What a folder of prebuilt FlashInfer kernels says of itself, and whether that is true; no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "MANIFEST",
    "Manifest",
    "ObjectsError",
    "attention_name",
    "read_manifest",
    "sha256",
    "write_manifest",
]

MANIFEST = "manifest.json"
FORMAT = 1
PAGE = "page"


class ObjectsError(ValueError):
    """A folder that cannot be used; the message is one line that says what to do."""


@dataclass(frozen=True)
class Manifest:
    """``arch``: the compute capability that the kernels are for, as in "9.0a". ``files``: SHA-256 by file name."""

    flashinfer: str
    cuda: str
    arch: str
    dtypes: tuple[str, ...]
    head_dims: tuple[int, ...]
    files: Mapping[str, str]
    format: int = field(default=FORMAT, kw_only=True)


def attention_name(dtype: str, head_dim: int) -> str:
    """The object (without its suffix) that attends over heads of this kind."""
    return f"attention_{dtype}_{head_dim}"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Last of all: a folder without it is one that was not finished."""
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """ObjectsError when the folder is another's, unfinished, of another format, or not what was built."""
    path = folder / MANIFEST
    try:
        raw = json.loads(path.read_text())
        manifest = _parsed(raw)
    except OSError as error:
        raise ObjectsError(
            f"{folder} has no {MANIFEST} ({error.strerror or error}); build it with make flashinfer-objects"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ObjectsError(
            f"{path} is no manifest of FlashInfer objects ({type(error).__name__}: {error}); "
            "build the folder again with make flashinfer-objects"
        ) from error
    for name, expected in manifest.files.items():
        found = sha256(folder / name) if (folder / name).is_file() else None
        if found != expected:
            what = "is missing" if found is None else "is not the file that was built"
            raise ObjectsError(f"{folder / name} {what}; copy the folder again, or build it again")
    return manifest


def _parsed(raw: Any) -> Manifest:
    if raw["format"] != FORMAT:
        raise ValueError(f"format {raw['format']!r}, expected {FORMAT}")
    files = {str(name): str(digest) for name, digest in raw["files"].items()}
    dtypes, head_dims = tuple(map(str, raw["dtypes"])), tuple(map(int, raw["head_dims"]))
    needed = {PAGE, *(attention_name(dtype, dim) for dtype in dtypes for dim in head_dims)}
    if files.keys() != {f"{name}.so" for name in needed}:
        raise ValueError(f"it names the files {sorted(files)}, not one .so for each of {sorted(needed)}")
    return Manifest(str(raw["flashinfer"]), str(raw["cuda"]), str(raw["arch"]), dtypes, head_dims, files)
