"""Requests as values, and the files that they are written to."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

URL = "/v1/completions"


@dataclass(frozen=True)
class Request:
    """One line of a requests file. `name` is its custom_id and says what is special about it.

    `max_tokens` None leaves the field out. A `held` request runs to its cap whatever it says: neither EOS nor
    a stop string ends it.
    """

    name: str
    prompt: tuple[int, ...] | str
    max_tokens: int | None
    ignore_eos: bool = True
    stop: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return self.ignore_eos and not self.stop and bool(self.max_tokens)

    def line(self) -> str:
        body: dict[str, object] = {
            "prompt": self.prompt if isinstance(self.prompt, str) else list(self.prompt),
            "ignore_eos": self.ignore_eos,
        }
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        if self.stop:
            body["stop"] = list(self.stop)
        return json.dumps({"custom_id": self.name, "method": "POST", "url": URL, "body": body})


@dataclass(frozen=True)
class Batch:
    """What is submitted at once. Names are unique within it."""

    name: str
    requests: tuple[Request, ...]

    def __post_init__(self) -> None:
        if len({request.name for request in self.requests}) != len(self.requests):
            raise ValueError(f"batch {self.name}: two requests have one name")

    @property
    def prompts(self) -> int:
        return len(self.requests)

    @property
    def cap(self) -> int:
        """The largest max_tokens of it."""
        return max((request.max_tokens or 0 for request in self.requests), default=0)

    @property
    def context(self) -> int:
        """What the model's context must hold for its longest request."""
        return max((len(r.prompt) + (r.max_tokens or 0) for r in self.requests), default=0)


def random_prompt(rng: random.Random, length: int) -> tuple[int, ...]:
    """Printable ASCII as token ids: text for a byte tokenizer, valid ids for any other."""
    return tuple(rng.randrange(32, 127) for _ in range(length))


def write_batches(batches: Sequence[Batch], folder: Path) -> tuple[str, ...]:
    """Writes one requests file a batch, in order; the same batches give the same bytes."""
    paths = []
    for number, batch in enumerate(batches):
        path = folder / f"{number}-{batch.name}.jsonl"
        path.write_text("".join(request.line() + "\n" for request in batch.requests), encoding="utf-8")
        paths.append(str(path))
    return tuple(paths)
