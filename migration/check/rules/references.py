"""Items about what the handler may mention: forbidden references, the snapshot, what stays on the worker."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.check.model import Finding, Fix, Place, Seen, fix, many
from migration.check.objects import HANDLER, SNAPSHOT, WORKER, Access, as_way, handle_root
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.source import Edit
from migration.recipe_checklist import Item


def _mentions(subject: Subject) -> Iterator[tuple[str, Access]]:
    for symbol, node in subject.functions():
        for access in subject.objects.accesses(node):
            yield symbol, access


def _shown(access: Access) -> str:
    """How the code spells it, on one line."""
    text = " ".join(ast.unparse(access.node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _class_line(subject: Subject) -> tuple[Place, ...]:
    return (subject.at(subject.handler_shape.node),)


def forbidden_reference(subject: Subject, item: Item) -> Seen:
    """Every spelling of the expressions, and every attribute called as one of the names."""
    forbidden = {as_way(text): text for text in item.texts("expressions")}
    names = item.texts("names")
    looked, found = 0, []
    for symbol, access in _mentions(subject):
        looked += 1
        if access.kind in ("write", "delete") and item.data.get("allow_writes", False):
            continue
        meant = next((forbidden[way] for way in access.ways if way in forbidden), "")
        if meant or access.name in names:
            what = f", which is {meant}" if meant and _shown(access) != meant else ""
            found.append(Finding("MG610", f"{_shown(access)}{what}", subject.at(access.node), symbol))
    what = ", ".join((*forbidden.values(), *names))
    return Seen(
        tuple(found), looked, _class_line(subject), f"{many(looked, 'attribute use')}, none is {what}"
    )


def worker_only(subject: Subject, item: Item) -> Seen:
    """State that belongs to the worker's own life cycle, under whatever object it is looked up."""
    names = item.texts("names")
    looked, found = 0, []
    for symbol, access in _mentions(subject):
        looked += 1
        if access.name in names:
            message = f"{_shown(access)}: {access.name} is the worker's own"
            found.append(Finding("MG613", message, subject.at(access.node), symbol))
    for literal in (node for part in subject.parts for node in ast.walk(part.shape.node)):
        if isinstance(literal, ast.Constant) and literal.value in names:
            if not any(f.place.line == literal.lineno for f in found):
                found.append(Finding("MG613", f"names {literal.value!r}", subject.at(literal)))
    there = [name for name in names if name.encode() in subject.worker.data]
    if not there:
        return Seen(tuple(found), 0, (), f"{subject.worker.path} has no {', '.join(names)} either")
    evidence = (Place(subject.worker.path, _line_of(subject.worker.data, there[0])),)
    return Seen(
        tuple(found), looked, evidence, f"{many(looked, 'attribute use')}, none of {', '.join(names)}"
    )


def _line_of(data: bytes, name: str) -> int:
    return data.count(b"\n", 0, data.find(name.encode())) + 1


def snapshot_only(subject: Subject, item: Item) -> Seen:
    """Configuration is read from the frozen snapshot and nowhere else."""
    names = item.texts("attributes")
    looked, found = 0, []
    evidence: list[Place] = []
    for symbol, access in _mentions(subject):
        looked += 1
        if access.owner == frozenset({(SNAPSHOT,)}):
            evidence = evidence or [subject.at(access.node)]
        live = any(way[0] != SNAPSHOT and way[-1] in names for way in access.ways)
        if live or (access.name in names and not access.ways):
            mended = _from_snapshot(subject, access)
            message = f"{_shown(access)} reads it from the live worker"
            found.append(Finding("MG611", message, subject.at(access.node), symbol, mended))
    note = f"{many(looked, 'attribute use')}, {', '.join(names)} only through the snapshot"
    return Seen(tuple(found), looked, tuple(evidence) or _class_line(subject), note)


def _from_snapshot(subject: Subject, access: Access) -> Fix | None:
    """`self._host.model_config.layers` -> `self._config.layers`, where the snapshot has that field."""
    spec = subject.recipe.snapshot
    if spec is None:
        return None
    for node in (node for part in subject.parts for node in ast.walk(part.shape.node)):
        if not (isinstance(node, ast.Attribute) and node.value is access.node):
            continue
        path = ".".join((*next(iter(access.ways), ())[1:], node.attr))
        written = ast.unparse(access.node).split(".")[0]
        if path in spec.fields and isinstance(node.ctx, ast.Load) and node.lineno == node.end_lineno:
            source = subject.source_of(node)
            start = source.offset(node.lineno, node.col_offset)
            end = source.offset(node.lineno, node.end_col_offset or 0)
            text = f"{written}._{spec.name}.{node.attr}"
            return fix(f"read {node.attr} from the snapshot", source, [Edit(start, end, text.encode())])
    return None


def computed(subject: Subject, item: Item) -> Seen:
    """A value that is computed from the snapshot: never read from an instance, and assigned somewhere.

    What a request brings is a snapshot in the methods that only ever run to plan, and an instance in all others.
    """
    found: list[Finding] = []
    evidence: list[Place] = []
    looked = 0
    planned = {id(access.node) for node in _planned(subject) for access in _of_request(subject, node)}
    for name in item.texts("names"):
        made = list(_definitions(subject, name))
        looked += len(made)
        good = [node for node, from_snapshot in made if from_snapshot]
        evidence += [subject.at(node) for node in good]
        found += [
            Finding(
                "MG612", f"{name} is computed from something else than the snapshot", subject.at(node), name
            )
            for node, from_snapshot in made
            if not from_snapshot
        ]
        for symbol, access in _mentions(subject):
            if access.name == name and access.kind in ("read", "ask", "call"):
                looked += 1
                live = any(way[0] in (WORKER, HANDLER) for way in access.ways)
                if live and not _is_own(subject, access) and id(access.node) not in planned:
                    message = f"{_shown(access)} reads it from instance state"
                    found.append(Finding("MG612", message, subject.at(access.node), symbol))
    names = ", ".join(item.texts("names"))
    return Seen(
        tuple(found),
        looked,
        tuple(evidence),
        f"{names}: {many(len(evidence), 'definition')} from the snapshot",
    )


def _planned(subject: Subject) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Moved methods that the gate compares as plans: what serves them runs them in a world made of a snapshot."""
    planned = {name for name, kind in subject.recipe.effects if kind == "planned"}
    return (method.node for _, method in subject.all_methods if method.name in planned)


def _of_request(subject: Subject, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Access]:
    """What a function reads through the handle that comes with each request."""
    requests = {f"_{handle.name}" for handle in subject.recipe.handles if handle.request}
    for access in subject.objects.accesses(function):
        parts = {part.attr for part in ast.walk(access.node) if isinstance(part, ast.Attribute)}
        if parts & requests:
            yield access


def _is_own(subject: Subject, access: Access) -> bool:
    """A method or property of the handler that computes it."""
    names = {method.name for _, method in subject.all_methods}
    return access.name in names and all(way == ("handler", access.name) for way in access.ways)


def _definitions(subject: Subject, name: str) -> Iterator[tuple[ast.AST, bool]]:
    """(where the name is given a value, whether the snapshot goes into it)."""
    for _, function in subject.functions():
        if function.name == name:
            yield function, _uses_snapshot(subject, function)
        for node in ast.walk(function):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                targets = [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                yield node, _uses_snapshot(subject, function, getattr(node, "value", None))
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == name:
                        yield keyword.value, _uses_snapshot(subject, function, keyword.value)


def _uses_snapshot(
    subject: Subject, function: ast.FunctionDef | ast.AsyncFunctionDef, value: ast.expr | None = None
) -> bool:
    """Whether the function, or one expression of it, reads a field of the snapshot, or of a parameter of its type."""
    spec = subject.recipe.snapshot
    typed = {
        argument.arg
        for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        if spec
        and argument.annotation is not None
        and ast.unparse(argument.annotation).strip("'\"") == spec.class_name
    }
    inside = None if value is None else {id(part) for part in ast.walk(value)}
    if any(function is node for node in _planned(subject)):
        for access in _of_request(subject, function):
            if inside is None or id(access.node) in inside:
                return True
    for access in subject.objects.accesses(function):
        if inside is not None and id(access.node) not in inside:
            continue
        node = access.node
        of_parameter = (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in typed
        )
        if of_parameter or any(way[0] == SNAPSHOT for way in access.ways):
            return True
    return False


def presence_test(subject: Subject, item: Item) -> Seen:
    """No hasattr, getattr with a default, or `in vars(...)`: the Protocol says what is there."""
    names = item.texts("attributes")
    handle = item.text("handle")
    looked, found = 0, []
    evidence: list[Place] = []
    replaced = {rewrite.before: rewrite.after for rewrite in subject.recipe.rewrites}
    for symbol, access in _mentions(subject):
        looked += 1
        if access.name in names and access.kind == "ask":
            message = f"{_shown(access)} asks whether it is there"
            mended = _as_declared(subject, access, replaced)
            found.append(Finding("MG617", message, subject.at(access.node), symbol, mended))
        if handle and any(way[:1] == (handle_root(handle),) for way in (*access.owner, *access.ways)):
            evidence = evidence or [subject.at(access.node)]
    if handle and not evidence:
        return Seen(tuple(found), 0, (), f"the handler never uses the handle {handle}")
    note = f"{many(looked, 'attribute use')}, no presence test of {', '.join(names)}"
    return Seen(tuple(found), looked, tuple(evidence) or _class_line(subject), note)


def _as_declared(subject: Subject, access: Access, replaced: dict[str, str]) -> Fix | None:
    """What a rewrite of the recipe says instead of the question."""
    node = access.node
    if not isinstance(node, ast.Call) or node.lineno != node.end_lineno:
        return None
    asked = ast.Call(node.func, [ast.Name("self"), *node.args[1:]], node.keywords)
    spelled = ast.unparse(asked)
    for before, after in replaced.items():
        if ast.unparse(ast.parse(before, mode="eval").body) == spelled:
            source = subject.source_of(node)
            start = source.offset(node.lineno, node.col_offset)
            end = source.offset(node.lineno, node.end_col_offset or 0)
            handle, _, member = after.removeprefix("self.").partition(".")
            text = f"self._{handle}.{member}"
            return fix("ask the Protocol, as the recipe declares", source, [Edit(start, end, text.encode())])
    return None


RULES = (
    Rule("MG610", "forbidden-reference", "The handler makes no forbidden reference", forbidden_reference),
    Rule("MG611", "snapshot-only", "Configuration is read from the snapshot only", snapshot_only),
    Rule("MG612", "computed", "Computed from the snapshot, not read from an instance", computed),
    Rule("MG613", "worker-only", "The worker's own state stays on the worker", worker_only),
    Rule("MG617", "presence-test", "The Protocol says what is there, no hasattr", presence_test),
)
