"""The pool as it is: other names than the Protocol, and more parameters."""


class Pool:
    def __init__(self) -> None:
        self.taken: dict[str, list[int]] = {}
        self.closed = False

    def allocate(self, seq: str, count: int, *, pin: bool = False) -> list[int]:
        self.taken[seq] = list(range(count))
        return self.taken[seq] * (1 + pin)

    def left(self) -> int:
        return 8 - sum(map(len, self.taken.values()))
