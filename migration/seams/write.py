"""The recipe of a slice as a file, with what the plan knows about it as comments."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from migration.errors import MigrationError
from migration.ledger.disk import sync_directories
from migration.ledger.interrupts import held_back
from migration.recipe_text import Comments, recipe_text
from migration.seams.plan import ClassPlan
from migration.seams.trial import Trial


def planned_text(plan: ClassPlan, trial: Trial) -> str:
    """TOML of the recipe that was tried."""
    graph, cut, recipe = plan.graph, trial.candidate.cluster, trial.recipe
    moved = [name for name in cut.names if name not in trial.refused]
    diff = f"+{sum(d.added for d in trial.diff)} -{sum(d.deleted for d in trial.diff)}"
    head = [
        f"{len(moved)} methods of {recipe.source_class}, {graph.lines(moved)} lines, planned by `migrate plan`.",
        f"Protocols: {len(trial.members)} members, {len(trial.written)} of them written. The cut: {diff} lines.",
        "Calls between these methods stay on the handler, but for those in `late_bound`, which some file here",
        'replaces. `siblings = "worker"` sends all of them through the worker, for subclasses elsewhere.',
        "[planned.bodies]: the methods are refused (MG109) once they differ from what was planned on.",
    ]
    methods = {name: _about(plan, name, set(cut.names)) for name in recipe.methods}
    stays = {
        name: "; ".join(dict.fromkeys(f"{r.code}: {r.message}" for r in found))
        for name, found in trial.refused.items()
    }
    return recipe_text(recipe, Comments(head, methods, stays))


def _about(plan: ClassPlan, name: str, inside: set[str]) -> str:
    callers = [caller for caller in plan.graph.callers[name] if caller not in inside]
    more = f" and {len(callers) - 3} more" if len(callers) > 3 else ""
    said = f", called by {', '.join(callers[:3])}{more}" if callers else ""
    return f"{plan.graph.nodes[name].lines} lines{said}"


def write_recipe(path: Path, text: str, *, force: bool) -> None:
    """Write the file as a whole or not at all; MG534 when there is one already, unless `force`."""
    if path.suffix != ".toml":
        raise MigrationError("MG537", f"{path} does not end in .toml")
    with held_back() as held:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
            if force:
                os.replace(name, path)
            else:
                os.link(name, path)  # fails where there is one, even if it has come this moment
        except FileExistsError:
            raise MigrationError("MG534", f"{path} is there already") from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        sync_directories([path.parent])
        held.raise_if_any(f"interrupted after {path} was written")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
