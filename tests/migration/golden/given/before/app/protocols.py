"""What backends must do."""

from typing import Protocol


class HostKvBackend(Protocol):
    pages: list[int]

    def load(self, uuid: str, *page_ids: int, **options: object) -> str: ...
