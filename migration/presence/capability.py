"""A method that only some subclasses have: an isinstance test with a Protocol says so."""

from __future__ import annotations

import ast

from migration.code.structure import FunctionNode
from migration.presence.answer import Answer, is_plain_name
from migration.presence.findings import Rewrite
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
    title = "Has" + "".join(part.capitalize() for part in name.split("_"))
    member = _member(nodes[0]) if len(nodes) == 1 else f"def {name}(self, *args, **kwargs): ..."  # type: ignore[arg-type]
    declares = f"@runtime_checkable\nclass {title}(Protocol):\n    {member}"
    object_ = ast.unparse(answer.test.node.args[0])
    who = ", ".join(known.name for known in providers)
    return Rewrite("capability", f"isinstance({object_}, {title})", f"only {who} define it", declares)


def _member(node: FunctionNode) -> str:
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0].args  # type: ignore[attr-defined]
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    start = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{start} {node.name}({ast.unparse(arguments)}): ..."
