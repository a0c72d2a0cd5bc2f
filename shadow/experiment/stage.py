"""What both candidates of a call (the handler, and the legacy body against itself) start from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shadow.experiment.audit import Auditor
from shadow.experiment.snapshot import Snapshot
from shadow.experiment.tape import Recorder


class Lessons:
    """What earlier calls showed must be looked at beforehand. One for each gated method."""

    def __init__(self) -> None:
        #: Attributes of the worker, beyond those that the gate names.
        self.attributes: set[str] = set()
        #: (class, attribute) of collaborators that leads to a further collaborator.
        self.descend: set[tuple[type, str]] = set()
        #: (class, attribute) of collaborators that holds data.
        self.deep: set[tuple[type, str]] = set()


@dataclass(eq=False)
class Stage:
    """A snapshot, and the tape of the control.

    `lazy`: the control writes nothing, so live state is copied when it is asked for.
    """

    #: None for a static method.
    worker: Any
    snapshot: Snapshot
    recorder: Recorder
    auditor: Auditor
    lessons: Lessons
    lazy: bool
    #: Attributes of the worker and of its class: their copies, or MISSING where none was made.
    attributes: dict[str, Any] = field(default_factory=dict)
    #: Identities of callables that belong to the caller: what their calls are named on the tape.
    callbacks: dict[int, str] = field(default_factory=dict)
    #: Why an attribute could not be copied.
    unavailable: dict[str, str] = field(default_factory=dict)
