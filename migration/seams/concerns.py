"""Handles for a cluster: its attributes grouped by what they are to it."""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Collection
from dataclasses import dataclass

from migration.move.moving import mangled
from migration.recipe import HandleSpec
from migration.seams.graph import ClassGraph
from migration.seams.interface import Cluster
from migration.seams.objects import object_uses
from migration.seams.words import camel
from migration.survey.free_names import free_name

#: Handles beside the rest: more of them, and a constructor is hard to read.
MOST = 6
_CONFIG = re.compile(
    r"(?:^|_)(?:configs?|configuration|cfg|conf|args|arguments|options|opts|settings|params|flags)$"
)


@dataclass(frozen=True)
class Concern:
    """Attributes that make up one handle; `why` says what they have in common.

    With `is_object` the handle is the object in the one attribute, not the worker seen in part.
    """

    name: str
    why: str
    attributes: tuple[str, ...]
    is_object: bool = False


_WHY = {
    "config": "Settled when the object is set up.",
    "state": "State that only these methods use.",
    "shared": "State that other methods use too.",
    "objects": "Objects that these methods call.",
}


def concerns(graph: ClassGraph, found: Cluster) -> tuple[Concern, ...]:
    """The attributes of a cluster in at most `MOST` groups; methods of the class are left to the rest.

    `config`: nobody binds or changes them once the object is set up. `state`: nobody else uses them.
    `shared`: others use them too. Then one for each object whose methods the cluster calls, the most used
    first; the last ones together.
    """
    inside = frozenset(found.names)
    nodes = [graph.nodes[name] for name in found.names]
    asked = frozenset(a for node in nodes for a in node.asked)
    methods = {mangled(name, graph.shape.name) for name in graph.nodes}
    groups: dict[str, list[str]] = {"config": [], "state": [], "shared": []}
    objects: list[str] = []
    for attribute in sorted(frozenset(a for node in nodes for a in node.mentioned) - methods):
        if _CONFIG.search(attribute.lower()) and attribute not in graph.late:
            groups["config"].append(attribute)
        elif attribute in asked:
            objects.append(attribute)
        elif attribute not in graph.early | graph.late:
            continue  # a base class has it, or nobody: the rest takes what the class itself does not show
        elif attribute not in graph.unsettled:
            groups["config"].append(attribute)
        elif graph.users[attribute] <= inside:
            groups["state"].append(attribute)
        else:
            groups["shared"].append(attribute)
    plain = [
        Concern(name, _WHY[name], tuple(attributes)) for name, attributes in groups.items() if attributes
    ]
    return tuple(_named(plain + _of_objects(graph, found, objects, MOST - len(plain))))


def _of_objects(graph: ClassGraph, found: Cluster, objects: Collection[str], room: int) -> list[Concern]:
    """One concern for each object; where there is no room for all, the least used ones share the last."""
    uses = object_uses(graph, found.names)
    count = {a: sum(uses[a].members.values()) if a in uses else 0 for a in objects}
    ranked = sorted(objects, key=lambda a: (-count[a], a))
    alone = ranked if len(ranked) <= room else ranked[: room - 1]
    rest = sorted(set(ranked) - set(alone))
    probed = frozenset(a for name in found.names for a in graph.nodes[name].probed)
    single = [
        Concern(
            _handle_name(a),
            f"The object in `{a}`.",
            (a,),
            a in uses and not uses[a].bare and a not in probed | found.written,
        )
        for a in alone
    ]
    return single + ([Concern("objects", _WHY["objects"], tuple(rest))] if rest else [])


def _handle_name(attribute: str) -> str:
    name = attribute.strip("_").lower() or "object"
    name = f"object_{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) else name


def _named(found: list[Concern]) -> list[Concern]:
    """The same with names that are all different: groups keep theirs, objects get another."""
    taken: set[str] = set()
    named = []
    for concern in found:
        name = free_name((concern.name, f"{concern.name}_object"), taken)
        taken.add(name)
        named.append(dataclasses.replace(concern, name=name))
    return named


def handle_specs(
    graph: ClassGraph, found: Cluster, stem: str, handler: str, taken: Collection[str]
) -> tuple[HandleSpec, ...]:
    """The concerns as handles of a recipe, and `host` for the rest. No name clashes with what `taken` has,
    nor with a method of the class: `self._config` must be the handle."""
    private = {name.removeprefix("_") for name in graph.nodes if name.startswith("_")}
    handle_names: set[str] = private | {"for_worker"}
    protocols: set[str] = {*taken, handler, "Any", "Protocol", "TYPE_CHECKING"}

    def spec(one: Concern, rest: bool = False) -> HandleSpec:
        name = one.name
        free = free_name((name, f"{name}_part", f"{name}_handle"), handle_names)
        handle_names.add(free)
        wanted = camel(name) if name.startswith(f"{stem}_") else camel(stem) + camel(name)
        protocol = free_name((wanted, f"{wanted}View", f"{wanted}Part"), protocols)
        protocols.add(protocol)
        if one.is_object:
            chain = (f"self.{one.attributes[0]}",)
            return HandleSpec(free, protocol, one.why, (), False, expressions=chain)
        return HandleSpec(free, protocol, one.why, one.attributes, rest)

    specs = [spec(one) for one in concerns(graph, found)]
    left = f"What is left: methods of {graph.shape.name}, and what its own code does not show."
    return (*specs, spec(Concern("host", left, ()), rest=True))


def members_of(graph: ClassGraph, found: Cluster, handles: Collection[HandleSpec]) -> frozenset[str]:
    """Members of the Protocols as far as the class shows them: `name` of the worker, `object.name`."""
    uses = object_uses(graph, found.names)
    members = set(found.own | found.needs | found.called)
    for handle in handles:
        for chain in handle.expressions:
            attribute = chain.removeprefix("self.")
            members.discard(attribute)
            looked_up = [name for name in uses[attribute].members if not hasattr(object, name)]
            members.update(f"{attribute}.{name}" for name in looked_up)
    return frozenset(members)
