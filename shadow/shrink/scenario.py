"""What a run is made of: request lines by batch, and the engine's options. The thing that is made smaller."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Request = Mapping[str, Any]
"""One line of a request file, as JSON."""


class ScenarioError(ValueError):
    """A request file cannot be read; one line that says where and why."""


@dataclass(frozen=True)
class Scenario:
    """`batches` run back to back on one worker. `options` are fields of EngineOptions."""

    batches: tuple[tuple[Request, ...], ...]
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.batches))

    def places(self) -> list[tuple[int, int]]:
        """(batch, index) of every request."""
        return [(b, i) for b, batch in enumerate(self.batches) for i in range(len(batch))]

    def at(self, place: tuple[int, int]) -> Request:
        return self.batches[place[0]][place[1]]

    def only(self, places: Sequence[tuple[int, int]]) -> Scenario:
        """With these requests alone; a batch that has none left goes too."""
        kept = set(places)
        batches = (
            tuple(request for i, request in enumerate(batch) if (b, i) in kept)
            for b, batch in enumerate(self.batches)
        )
        return replace(self, batches=tuple(batch for batch in batches if batch))

    def with_request(self, place: tuple[int, int], request: Request) -> Scenario:
        batch, index = place
        changed = list(self.batches[batch])
        changed[index] = request
        return replace(self, batches=(*self.batches[:batch], tuple(changed), *self.batches[batch + 1 :]))

    def with_option(self, name: str, value: object) -> Scenario:
        return replace(self, options={**self.options, name: value})

    def write(self, folder: Path) -> tuple[str, ...]:
        """Request files, one a batch, for Setup.batches."""
        paths = []
        for number, batch in enumerate(self.batches):
            path = folder / f"batch-{number}.jsonl"
            path.write_text("".join(json.dumps(request) + "\n" for request in batch), encoding="utf-8")
            paths.append(str(path))
        return tuple(paths)


def read_scenario(paths: Sequence[Path], options: Mapping[str, object]) -> Scenario:
    """The scenario of request files. ScenarioError for a line that is not a JSON object."""
    return Scenario(tuple(tuple(_requests(path)) for path in paths), dict(options))


def _requests(path: Path) -> Iterator[Request]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            request = json.loads(line)
        except ValueError as error:
            raise ScenarioError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(request, dict):
            raise ScenarioError(f"{path}:{number}: a request is a JSON object")
        yield request
