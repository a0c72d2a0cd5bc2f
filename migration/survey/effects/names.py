"""Names that tell an effect: collectives, the environment, the end of the process, changes in place."""

from __future__ import annotations

EXITS = frozenset(
    (
        "os._exit",
        "os.abort",
        "os.kill",
        "os.execv",
        "os.execvp",
        "sys.exit",
        "exit",
        "quit",
        "signal.raise_signal",
    )
)
#: Methods that change a list, dict, set or deque in place.
MUTATORS = frozenset(
    (
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "rotate",
        "setdefault",
        "sort",
        "update",
    )
)
_DISTRIBUTED = "torch.distributed."
#: Methods that are collectives whatever object they are called on.
_BY_NAME = (
    "all_gather",
    "all_gather_object",
    "all_gather_into_tensor",
    "all_gatherv",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast_object",
    "broadcast_object_list",
    "broadcast_pyobj",
    "broadcast_tensor_dict",
    "gather_object",
    "monitored_barrier",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter_object_list",
)


def is_collective(name: str, origin: str | None) -> bool:
    """Whether a call must be made by every rank of a group.

    `origin` is what the called name means, None where that is not known: then only names that are
    collectives everywhere count.
    """
    if origin is not None and origin.startswith(_DISTRIBUTED):
        last = origin.rpartition(".")[2]
        return not last.startswith(("get_", "is_", "set_")) and not last[:1].isupper()
    lasts = {path.rpartition(".")[2] for path in (name, origin or name)}
    return any(
        last in _BY_NAME or last.endswith(("_all_reduce", "_all_gather", "_reduce_scatter")) for last in lasts
    )


def is_environment_module(origin: str) -> bool:
    """A module called `envs`: by custom its capitals read the environment when they are looked up."""
    return origin.rpartition(".")[2] == "envs"


def looks_like_state(path: str) -> bool:
    """Whether `path.append(...)` changes an imported `path` rather than calling a function of a module."""
    parts = path.split(".")
    return parts[-1].isupper() or any(part[:1].isupper() for part in parts) or path == "sys.path"
