"""The machines of a Ray cluster. They need this package, and the records and the tree at the same paths."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from shadow.record.fleet.engine import Done, EngineError, Lost, replay_in_worker
from shadow.record.one import Work

_AT_LEAST = 16
"""Records handed over to a cluster that has no machines yet: one that grows by demand sees some."""

_ANSWER_SECONDS = 10.0


def _check(address: str) -> None:
    """Ray itself tries for minutes to reach a machine that does not answer. EngineError."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
        except OSError as error:
            raise EngineError(
                f"nothing answers at --ray-address {address} ({error}): is the cluster up, and is that its address?"
            ) from error


class RayEngine:
    """`slots`: None for twice the cores of the cluster, so that none waits for its next record. `address`: as
    that of ray.init; None for the cluster of this machine or of RAY_ADDRESS, and one is started if there is none."""

    def __init__(self, work: Work, slots: int | None, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise EngineError(
                f"Ray cannot be imported ({error}): pip install 'batchgen-migrate[fleet]'"
            ) from error
        self._ray: Any = ray
        if address is not None:
            _check(address)
        try:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise EngineError(f"Ray does not start or is not reached: {first}") from error
        self.slots = slots or max(_AT_LEAST, 2 * int(ray.cluster_resources().get("CPU", 0)))
        self._work = ray.put(work)
        self._replay = ray.remote(max_retries=0)(
            replay_in_worker
        )  # who tries again is shadow.record.fleet.run
        self._running: dict[Any, Path] = {}

    def submit(self, path: Path) -> None:
        self._running[self._replay.remote(self._work, path)] = path

    def results(self) -> Sequence[Done | Lost]:
        ended, _ = self._ray.wait(list(self._running))
        return [self._answer(reference, self._running.pop(reference)) for reference in ended]

    def _answer(self, reference: Any, path: Path) -> Done | Lost:
        try:
            return Done(path, self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            first = str(cause).strip().splitlines() or [""]
            return Lost(path, f"failed: {type(cause).__name__}: {first[0]}")

    def close(self) -> None:
        for reference in self._running:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
        self._ray.shutdown()
