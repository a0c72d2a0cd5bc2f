"""What can go wrong in a decode launch, by where it goes wrong: only a forward that ran out of KV pages preempts."""

from __future__ import annotations

KV_EXHAUSTED = "KV cache exhausted"


class LaunchError(RuntimeError):
    """A decode launch that did not give logits."""


class ForwardError(LaunchError):
    """The forward itself failed."""


class KvExhausted(ForwardError):
    """No page is left for a row. Raised while pages are reserved: no row has advanced."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{KV_EXHAUSTED}: {what}")


class ReadbackError(LaunchError):
    """The forward ran; its result did not reach the host."""


class EffectError(LaunchError):
    """The device was asked for something that it does not hold, such as a wrong ticket."""


class SpillError(RuntimeError):
    """A sequence could not be written to, or read from, the spill store."""


class RanksDisagree(RuntimeError):
    """Ranks that must decode the same rows in the same order do not."""


def is_kv_exhausted(error: BaseException) -> bool:
    """Whether a forward error says, anywhere in the chain of its causes, that KV pages ran out.

    By the text, as the engine studied does: a backend's own error counts as well as `KvExhausted`. Readback and
    effect errors never do, whatever they say.
    """
    if not isinstance(error, ForwardError):
        return False
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if KV_EXHAUSTED in str(link):
            return True
        seen.add(id(link))
        link = link.__cause__ or link.__context__
    return False
