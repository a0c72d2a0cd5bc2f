"""Declaring a lazy attribute in `__init__`: when None, or a default, can stand for "not there yet"."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from migration.presence.answer import Answer, is_plain_name, refused, spelled
from migration.presence.findings import HasattrFinding, Rewrite
from migration.presence.never_none import never_none
from migration.presence.world import World


def declared(answer: Answer, name: str) -> Rewrite:
    text = spelled(answer.test, name)
    default = "None" if answer.default is None else ast.unparse(answer.default)
    declares = f"{text} = {default}"
    if answer.test.kind == "hasattr":
        text = f"({text} is not None)" if answer.operand else f"{text} is not None"
    if default != "None":
        return Rewrite("declared", text, f"every read of it that may come first asks for {default}", declares)
    return Rewrite("optional", text, "absent becomes None, and nothing can tell the two apart", declares)


def declaring_obstacles(world: World) -> tuple[str, ...]:
    """What could tell an attribute that is None from one that is absent, or be run before `__init__`."""
    early = world.presence.before_own_init()
    return (
        *world.blind_spots,
        *world.risks("adds"),
        *world.risks("removes"),
        *world.risks("namespace"),
        *_computed_reads(world),
        *world.hooks("__getattr__", "__slots__"),
        *world.init_bypassed,
        *world.init_again,
        *(("a subclass passes self on before it calls super().__init__()",) if early is None else ()),
    )


def against_declaring(world: World, answer: Answer, name: str) -> str | None:
    """Why None, or the default of a getattr, cannot stand for "not there yet"; None where it can."""
    test = answer.test
    if world.rebinds_self(answer.method) or test.state is None or world.in_class_body(name) is not None:
        return answer.reason
    if not is_plain_name(name):
        return "the name cannot be written after a dot"
    if not answer.sites or any(site.kind == "delete" for site in answer.sites):
        return answer.reason
    for site in answer.sites:
        if site.kind in ("subclass", "other object"):
            return f"also made by {site.where} ({site.path}:{site.line})"
    if test.kind == "getattr" and not isinstance(answer.default, ast.Constant):
        return "the default is not a constant"
    default = ast.Constant(None) if test.kind == "hasattr" else answer.default
    assert isinstance(default, ast.Constant)
    asked = any(
        t.kind == "hasattr" and t.attribute == name for _, _, trace in world.everywhere for t in trace.tests
    )
    if asked and default.value is not None:
        return "a hasattr asks for it too"
    # A getattr hands on the None that it finds: only a hasattr tells it from nothing at all.
    against = _value_against(world, name) if asked else None
    return against or _place_against(world, answer) or _use_against(world, name, default)


def _value_against(world: World, name: str) -> str | None:
    kinds: list[str | None] = []
    augmented = False
    for known, function, trace in world.own:
        for write in trace.writes:
            if write.attribute != name:
                continue
            if write.how == "augment":
                augmented = True
                continue
            kinds.append(never_none(write.value, known, world.files))
            if kinds[-1] is None:
                value = "a part of what is unpacked" if write.value is None else ast.unparse(write.value)
                said = "assigns None" if value == "None" else f"may assign None: {value}"
                return f"{function.name} {said} (line {write.node.lineno})"
    if augmented and set(kinds) != {"builtin"}:
        return "changed by an augmented assignment whose result may be None"
    return None


def _place_against(world: World, answer: Answer) -> str | None:
    """There must be an `__init__` that runs before every test, with room for the declaration."""
    found = world.presence.initialiser
    if found is None or found[0] is not world.owner:
        return "the class has no __init__ of its own where it could be declared"
    if world.rebinds_self(found[1]):
        return "__init__ gives self another meaning"
    early = world.presence.before_own_init()
    if early is not None and answer.method.name in early:
        return f"{answer.method.name} may run before __init__ does"
    return None


def _use_against(world: World, name: str, declared: ast.Constant) -> str | None:
    """Every read must be under a test, and every other test must mean the same when it is declared."""
    for known, function, trace in world.everywhere:
        for load in trace.loads:
            if load.attribute == name and load.state is not None and name not in load.state:
                return f"{known.name}.{function.name} reads it without a test (line {load.node.lineno})"
        for test in trace.tests:
            if test.attribute != name or (test.kind == "hasattr" and known is world.owner):
                continue
            default = test.node.args[2] if len(test.node.args) > 2 else None
            same = default is not None and ast.dump(default) == ast.dump(declared)
            if known is not world.owner or not (same or (test.state is not None and name in test.state)):
                line = test.node.lineno
                return f"{known.name}.{function.name} asks for it in another way (line {line})"
    site = next(world.elsewhere(name, "load", "test", "store", "delete"), None)
    return None if site is None else f"also used outside the class ({site.path}:{site.line})"


def _computed_reads(world: World) -> Iterator[str]:
    for known, function, trace in world.everywhere:
        for test in trace.tests:
            if test.attribute is None:
                yield f"{known.name}.{function.name} asks for a computed name in line {test.node.lineno}"


def all_or_none(findings: tuple[HasattrFinding, ...]) -> tuple[HasattrFinding, ...]:
    """Declaring an attribute changes every test of it: one that cannot be rewritten spares none."""
    stuck: dict[str, int] = {}
    for finding in findings:
        if finding.attribute is None or _may_declare(finding) or not _depends(finding):
            continue
        if not (finding.kind == "getattr" and finding.rewrite.kind == "attribute"):
            stuck.setdefault(finding.attribute, finding.line)
    return tuple(
        _without_declaration(finding, stuck[finding.attribute])
        if finding.attribute in stuck and _may_declare(finding)
        else finding
        for finding in findings
    )


def _may_declare(finding: HasattrFinding) -> bool:
    change = finding.assumed.rewrite if finding.assumed is not None else finding.rewrite
    return change.kind in ("optional", "declared")


def _depends(finding: HasattrFinding) -> bool:
    return (finding.assumed.verdict if finding.assumed is not None else finding.verdict) == "depends"


def _without_declaration(finding: HasattrFinding, line: int) -> HasattrFinding:
    return replace(
        finding, rewrite=refused(f"the test in line {line} cannot be rewritten with it"), assumed=None
    )
