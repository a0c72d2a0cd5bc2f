"""MG525 to MG529: adapters and fakes that are generated from Protocols."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG525": Explanation(
        what="The method that the adapter wraps has a parameter that must be given, and no call through the "
        "Protocol gives it always.",
        why="The first call that leaves it out would fail.",
        past="Add the parameter to the Protocol's member, or map one that it has to it.",
        before="""\
class Pages(Protocol):
    def take(self, count: int) -> list[int]: ...

class Pool:
    def take_pages(self, count, owner): ...
""",
        after="""\
class Pages(Protocol):
    def take(self, count: int, owner: str) -> list[int]: ...

class Pool:
    def take_pages(self, count, owner): ...
""",
    ),
    "MG526": Explanation(
        what="A member of the Protocol, or one of its parameters, leads nowhere: the wrapped class shows no "
        "such attribute, or its method takes no such parameter.",
        why="The adapter would drop an argument, or fail at the first call.",
        past="Map the member to what the class calls it, or correct the Protocol.",
    ),
    "MG527": Explanation(
        what="The module has no Protocol of that name, or an annotation in it names something that cannot be "
        "imported from a module.",
        why="What is generated has to type-check against the Protocol, and imports the same names.",
        past="Correct the name; define types at module level.",
    ),
    "MG528": Explanation(
        what="An argument could not be passed on as it came: a decorator may change the parameters, the method "
        "is defined under a condition, one side is asynchronous and the other is not, or a default is no "
        "literal.",
        why="An adapter must behave as what it wraps does.",
        past="Write this method of the adapter by hand.",
    ),
    "MG529": Explanation(
        what="A name would mean two things in the generated module: two imports, or an import and a class.",
        why="One would hide the other.",
        past="Rename the Protocol or the class, or choose another name for the adapter.",
    ),
}
