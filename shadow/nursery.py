"""What two sides of one tree have in common, loaded once: a process with the model, from which both fork.

The weights are then shared between the sides, copy on write, as nobody writes to them. Loading runs on one thread:
OpenMP threads do not survive a fork, so none may exist when a side is forked.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LOADED_BY = ("model", "dtype", "seed", "row_exact")


@dataclass(frozen=True)
class Shared:
    """Equal for sides that may share: the tree and what its files hold, environment, how the model is loaded."""

    tree: str
    code: str
    environment: tuple[tuple[str, str], ...]
    loading: tuple[tuple[str, object], ...]


def code_digest(tree: Path) -> str:
    """One digest of every Python file of the tree's `batchgen`, names and contents."""
    digest = hashlib.sha256()
    for path in sorted((tree / "batchgen").rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(tree)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def shared(tree: str, options: Mapping[str, object], environment: Mapping[str, str]) -> Shared | None:
    """What a side has in common with others; None where it must load its model itself, as on a GPU."""
    device = options.get("device", "auto")
    if device != "cpu" and (device != "auto" or Path("/dev/nvidiactl").exists()):
        return None  # a process that has initialised CUDA cannot be forked
    resolved = Path(tree).resolve()
    if not (resolved / "batchgen" / "models" / "__init__.py").is_file():
        return None
    loading = tuple((name, options[name]) for name in _LOADED_BY if name in options)
    return Shared(str(resolved), code_digest(resolved), tuple(sorted(environment.items())), loading)


def load(what: Shared) -> None:
    """Loads the model in this process and leaves it where the engine of the tree will ask for it."""
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, what.tree)
    options = importlib.import_module("batchgen.engine").EngineOptions(**dict(what.loading))
    models: Any = importlib.import_module("batchgen.models")
    wanted = {
        "dtype": getattr(torch, options.dtype),
        "device": torch.device("cpu"),
        "row_exact": options.row_exact,
        "seed": options.seed,
    }
    original = models.load_model
    loaded = original(options.model, **wanted)
    # What the engine does before its first forward: done here, the blocked weights are shared, too.
    loaded.model.pack_for_decode()

    def load_model(name: str, **given: Any) -> Any:
        same = name == options.model and given == wanted
        return loaded if same else original(name, **given)

    models.load_model = load_model
    gc.collect()
    gc.freeze()  # a side that collects would otherwise write to every object, and so copy its page


def threads() -> int:
    """Threads of this process, whoever made them."""
    return len(list(Path("/proc/self/task").iterdir()))
