"""How the ranks of a node come to map the same host pool: local rank 0 makes it, the others find it."""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import re
import secrets
import tempfile
import time
from pathlib import Path

from batchgen.kv.host_segment import HostSegment, segment_bytes
from batchgen.kv.pool import KVPoolConfig

_POLL_SECONDS = 0.02


def create_shared(config: KVPoolConfig, rendezvous: Path, local_world: int) -> HostSegment:
    """Make the shared memory of a node and publish where to find it, in the file `rendezvous`.

    The file says where the memory is (this process and its file descriptor) and goes away when the last rank
    has attached, at the latest when this process ends.
    """
    token = secrets.token_hex(8)
    fd = os.memfd_create(f"batchgen-kv-{token}")
    os.ftruncate(fd, segment_bytes(config))
    segment = HostSegment(config, mmap.mmap(fd, segment_bytes(config)), fd)
    segment.format()
    segment.attach()
    card = {"pid": os.getpid(), "fd": fd, "token": token, "config": _describe(config), "ranks": local_world}
    segment.close_with(_retire, fd, rendezvous, token)
    draft = rendezvous.with_name(f"{rendezvous.name}.{token}")
    draft.write_text(json.dumps(card))
    os.replace(draft, rendezvous)
    return segment


def attach_shared(config: KVPoolConfig, rendezvous: Path, local_world: int, timeout: float) -> HostSegment:
    """Map the memory that local rank 0 publishes. TimeoutError when it does not within `timeout` seconds.

    ValueError when that rank was configured differently. A file left behind by a dead run is passed over.
    """
    deadline = time.monotonic() + timeout
    while True:
        segment, reason = _try_attach(config, rendezvous, local_world)
        if segment is not None:
            return segment
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"host KV pool {config.name!r}: local rank 0 did not offer its memory within {timeout:g} s "
                f"({reason}); see whether it failed at start, and give every run its own session name"
            )
        time.sleep(_POLL_SECONDS)


def _try_attach(config: KVPoolConfig, rendezvous: Path, local_world: int) -> tuple[HostSegment | None, str]:
    try:
        card = json.loads(rendezvous.read_text())
    except FileNotFoundError:
        return None, f"{rendezvous} does not exist"
    link = f"/proc/{card['pid']}/fd/{card['fd']}"
    try:
        if card["token"] not in os.readlink(link):
            return None, f"{rendezvous} is from a run that has ended"
        fd = os.open(link, os.O_RDWR)
    except OSError as error:
        return (
            None,
            f"{rendezvous} names the memory of process {card['pid']}, which cannot be opened: {error}",
        )
    if card["config"] != _describe(config) or card["ranks"] != local_world:
        os.close(fd)
        raise ValueError(
            f"host KV pool {config.name!r}: this rank wants {_describe(config)} for {local_world} ranks, "
            f"local rank 0 made {card['config']} for {card['ranks']}; start all ranks with the same options"
        )
    segment = HostSegment(config, mmap.mmap(fd, segment_bytes(config)), fd)
    segment.close_with(os.close, fd)
    attached = segment.attach()
    if attached > local_world:
        return None, f"{rendezvous} is from a run whose {local_world} ranks have all attached"
    if attached == local_world:
        _unlink(rendezvous, card["token"])
    return segment, ""


def rendezvous_path(session: str, node_id: int, pool: str) -> Path:
    """The file in which local rank 0 of a node says where the memory of `pool` is."""
    shared_memory = Path("/dev/shm")
    folder = shared_memory if shared_memory.is_dir() else Path(tempfile.gettempdir())
    clean = re.sub(r"[^A-Za-z0-9_.-]", "_", session)
    return folder / f"batchgen-kv-{os.getuid()}-{clean}-node{node_id}-{pool}"


def _retire(fd: int, rendezvous: Path, token: str) -> None:
    _unlink(rendezvous, token)
    os.close(fd)


def _unlink(rendezvous: Path, token: str) -> None:
    """Remove the file unless it is gone or speaks of other memory by now."""
    try:
        if json.loads(rendezvous.read_text())["token"] == token:
            rendezvous.unlink()
    except FileNotFoundError:
        return


def _describe(config: KVPoolConfig) -> dict[str, str | int | bool]:
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: str(value) if name == "dtype" else value for name, value in fields.items()}
