"""A method that only some subclasses have: an isinstance test with a Protocol says so."""

from __future__ import annotations

import ast

from migration.presence.answer import Answer, is_plain_name
from migration.presence.findings import HasattrFinding, Rewrite
from migration.presence.world import World


def capability(world: World, answer: Answer, name: str) -> Rewrite | None:
    """A method that only some subclasses have: a Protocol says so better."""
    if answer.test.kind != "hasattr" or not is_plain_name(name):
        return None
    if world.rebinds_self(answer.method) or world.in_class_body(name) is not None:
        return None
    if not answer.sites or any(site.kind != "subclass" for site in answer.sites):
        return None
    providers = [known for known in world.kin.outside if name in known.body.bindings]
    nodes = [known.body.plain_method(name) for known in providers]
    if not nodes or any(node is None for node in nodes) or len(answer.sites) != len(nodes):
        return None
    if next(world.elsewhere(name, "store", "delete"), None) is not None:
        return None
    title = capability_name(name)
    object_ = ast.unparse(answer.test.node.args[0])
    who = ", ".join(known.name for known in providers)
    return Rewrite(
        "capability", f"isinstance({object_}, {title})", f"only {who} define it", protocol_of(name)
    )


def capability_name(attribute: str) -> str:
    """`drain_pool` -> `HasDrainPool`"""
    return "Has" + "".join(part.capitalize() for part in attribute.split("_"))


def protocol_of(attribute: str) -> str:
    """The Protocol of a capability; a signature could name what its own module alone has."""
    return (
        f"@runtime_checkable\nclass {capability_name(attribute)}(Protocol):\n"
        f"    def {attribute}(self, *args: Any, **kwargs: Any) -> Any: ..."
    )


def no_capability(world: World, finding: HasattrFinding) -> str:
    """Why the rewrite of a test is not that of a capability."""
    name = finding.attribute or ""
    if finding.kind == "getattr":
        return "a getattr gives more than a yes or no"
    if not finding.sites or world.in_class_body(name) is not None:
        return finding.reason
    for site in finding.sites:
        if site.kind != "subclass":
            return f"also made by {site.where} ({site.path}:{site.line})"
    touched = next(world.elsewhere(name, "store", "delete"), None)
    if touched is not None:
        return f"objects are given it or lose it ({touched.path}:{touched.line})"
    site = finding.sites[0]
    return f"not a plain method wherever it is made: {site.where} ({site.path}:{site.line})"
