"""Adapters: a class that offers a Protocol and passes everything on to an object that exists already."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from migration.errors import MigrationError, Refusal
from migration.move.forwarding import OWN_DEFAULT, Forwarding, forward
from migration.move.handler_module import import_lines
from migration.move.names import ImportName
from migration.move.protocol_classes import ProtocolMember, ProtocolModule, annotations_of, importable
from migration.move.wrapped_class import WrappedClass

_WIDTH = 110
_GIVEN = f"""
#: Default of a parameter whose own default only the wrapped method has: what is omitted is not passed.
{OWN_DEFAULT}: Any = object()


def given(**arguments: Any) -> dict[str, Any]:
    return {{name: value for name, value in arguments.items() if value is not {OWN_DEFAULT}}}
""".strip("\n")


@dataclass(frozen=True)
class MemberMap:
    """Which name of the wrapped class a member stands for, and its parameters: member's -> wrapped's."""

    member: str
    wrapped: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AdapterSpec:
    """What a recipe says about one adapter; a member that `members` does not list keeps its name."""

    protocol: str
    adapter: str
    wrapped_class: str
    members: tuple[MemberMap, ...] = ()


@dataclass(frozen=True)
class Adapter:
    """Text of the adapter's module, LF line ends."""

    text: str


@dataclass(frozen=True)
class AdapterRefused:
    """No adapter, and every reason why (`where` of a refusal is the member)."""

    refusals: tuple[Refusal, ...]


def adapter_text(
    spec: AdapterSpec,
    protocols: ProtocolModule,
    wrapped: WrappedClass,
    is_first_party: Callable[[str], bool],
) -> Adapter | AdapterRefused:
    """The adapter of `spec.protocol` for `wrapped`.

    Each member gets the Protocol's parameters, and after them, by name only, the other parameters of the
    method that it stands for, with their defaults: whoever holds the adapter itself can pass everything.
    The object is asked for at each call, so that one that was replaced is not used any more.

    Refused: MG525 (a required parameter is out of reach), MG526 (the mapping does not fit), MG528 (cannot be
    passed on as it came), MG529 (a name means two things). Raises MG527 where the Protocol is not there.
    """
    protocol = next((p for p in protocols.protocols if p.name == spec.protocol), None)
    if protocol is None:
        known = ", ".join(p.name for p in protocols.protocols) or "none"
        raise MigrationError("MG527", f"{protocols.module} has no Protocol {spec.protocol}; it has {known}")
    build = _Build(protocols, wrapped)
    maps = {one.member: one for one in spec.members}
    for name in maps.keys() - {member.name for member in protocol.members}:
        build.refusals.append(Refusal("MG526", name, protocol.line, f"{spec.protocol} has no such member"))
    bodies = [
        build.member(member, maps.get(member.name, MemberMap(member.name, member.name)), protocol.line)
        for member in protocol.members
    ]
    imports = build.imports | {
        ImportName(protocols.module, spec.protocol),
        ImportName(wrapped.module, spec.wrapped_class),
    }
    runtime = {ImportName("collections.abc", "Callable"), ImportName("typing", "TYPE_CHECKING")}
    runtime |= {ImportName("typing", "Any")} if build.uses_any else set()
    runtime |= {item for item in imports if item.module in ("typing", "collections.abc")}
    imports -= runtime
    build.refusals += _clashes(spec, imports | runtime, protocol.line)
    if build.refusals:
        return AdapterRefused(tuple(build.refusals))
    head = [
        f'"""{spec.protocol} on {spec.wrapped_class}: passes on every parameter of what it wraps. Generated."""',
        "from __future__ import annotations",
        import_lines(runtime, is_first_party).strip("\n"),
        "if TYPE_CHECKING:\n" + import_lines(imports, is_first_party, "    ").strip("\n"),
    ]
    parts = [
        *([_GIVEN] if build.uses_own_default else []),
        _class(spec, [body for body in bodies if body]),
        "if TYPE_CHECKING:  # the type checker holds the adapter against its Protocol\n\n"
        f"    def _{spec.protocol}(adapter: {spec.adapter}) -> {spec.protocol}:\n        return adapter",
    ]
    return Adapter("\n\n".join(head) + "\n\n\n" + "\n\n\n".join(parts) + "\n")


def _clashes(spec: AdapterSpec, imports: set[ImportName], line: int) -> Iterator[Refusal]:
    bound: dict[str, ImportName] = {}
    for item in sorted(imports):
        other = bound.setdefault(item.bound, item)
        dotted = item.name is None and other.name is None and not (item.alias or other.alias)
        if item.bound in (spec.adapter, OWN_DEFAULT, "given") or (other != item and not dotted):
            yield Refusal("MG529", spec.adapter, line, f"{item.bound} means two things")


def _class(spec: AdapterSpec, bodies: list[str]) -> str:
    wrapped = spec.wrapped_class
    return "\n\n".join(
        [
            f"class {spec.adapter}:\n"
            f'    """{spec.protocol} on the {wrapped} that `wrapped` gives at each call, never an older one."""',
            f"    def __init__(self, wrapped: Callable[[], {wrapped}]) -> None:\n        self._wrapped = wrapped",
            f"    @classmethod\n    def of(cls, wrapped: {wrapped}) -> {spec.adapter}:\n"
            '        """For an object that is never replaced."""\n        return cls(lambda: wrapped)',
            *bodies,
        ]
    )


@dataclass
class _Build:
    protocols: ProtocolModule
    wrapped: WrappedClass
    imports: set[ImportName] = field(default_factory=set)
    refusals: list[Refusal] = field(default_factory=list)
    uses_any: bool = False
    uses_own_default: bool = False

    def member(self, member: ProtocolMember, to: MemberMap, line: int) -> str:
        """Text of one member, "" where it was refused."""
        offered = self.wrapped.offers(to.wrapped)
        line = member.node.lineno if member.node is not None else line
        if offered.code:
            return self._refuse(offered.code, member, line, f"{to.wrapped}: {offered.problem}")
        if member.node is None:
            if offered.node is not None:
                return self._refuse("MG526", member, line, f"{to.wrapped} is a method, the member is not")
            if member.writable and not offered.settable:
                return self._refuse("MG526", member, line, f"{to.wrapped} is read-only, the member is not")
            self.imports |= self.protocols.imports([member.annotation])
            return self._attribute(member, to)
        self.imports |= self.protocols.imports(annotations_of(member.node))
        asynchronous = isinstance(member.node, ast.AsyncFunctionDef)
        if offered.node is None:
            arguments = member.node.args
            if asynchronous or len([*arguments.posonlyargs, *arguments.args]) > 1 or arguments.kwonlyargs:
                return self._refuse(
                    "MG526", member, line, f"{to.wrapped} is an attribute and takes no parameter"
                )
            return self._method(member, f"self._wrapped().{to.wrapped}", ["self"], inexact=True)
        inner = isinstance(offered.node, ast.AsyncFunctionDef)
        if inner and not asynchronous:
            return self._refuse("MG528", member, line, f"{to.wrapped} is asynchronous, the member is not")
        plan = forward(member.node, offered.node, offered.bound, to.parameters)
        if not isinstance(plan, Forwarding):
            self.refusals += plan
            return ""
        self.uses_own_default |= plan.uses_own_default
        self.uses_any |= plan.uses_own_default
        call = f"self._wrapped().{to.wrapped}({', '.join(plan.arguments)})"
        returns = offered.node.returns
        inexact = returns is None or ast.unparse(returns) == "Any"
        return self._method(member, f"{'await ' * inner}{call}", ["self", *self._signature(plan)], inexact)

    def _refuse(self, code: str, member: ProtocolMember, line: int, message: str) -> str:
        self.refusals.append(Refusal(code, member.name, line, message))
        return ""

    def _type(self, annotation: ast.expr | None) -> str:
        text = ast.unparse(annotation) if annotation is not None else "Any"
        self.uses_any |= annotation is None
        return text

    def _attribute(self, member: ProtocolMember, to: MemberMap) -> str:
        kind = self._type(member.annotation)
        text = f"    @property\n    def {member.name}(self) -> {kind}:\n        return self._wrapped().{to.wrapped}"
        if member.writable:
            text += f"\n\n    @{member.name}.setter\n    def {member.name}(self, value: {kind}) -> None:\n"
            text += f"        self._wrapped().{to.wrapped} = value"
        return text

    def _method(self, member: ProtocolMember, call: str, signature: list[str], inexact: bool) -> str:
        node = member.node
        assert node is not None
        result = self._type(node.returns)
        head = f"    {'async ' * isinstance(node, ast.AsyncFunctionDef)}def {node.name}("
        line = f"{head}{', '.join(signature)}) -> {result}:"
        if len(line) > _WIDTH:
            line = head + "\n" + "".join(f"        {part},\n" for part in signature) + f"    ) -> {result}:"
        if result == "None":
            body = f"        {call}"
        elif inexact and result != "Any":
            body = f"        result: {result} = {call}\n        return result"
        else:
            body = f"        return {call}"
        return f"{line}\n{body}"

    def _signature(self, plan: Forwarding) -> list[str]:
        parts: list[str] = []
        kinds = [parameter.kind for parameter, _ in plan.parameters]
        extra = {parameter.name for parameter in plan.extra}
        for index, (parameter, default) in enumerate(plan.parameters):
            if parameter.kind == "kwonlyargs" and "vararg" not in kinds and "kwonlyargs" not in kinds[:index]:
                parts.append("*")
            kind = (
                self._extra_type(parameter.annotation)
                if parameter.name in extra
                else self._type(parameter.annotation)
            )
            stars = {"vararg": "*", "kwarg": "**"}.get(parameter.kind, "")
            parts.append(f"{stars}{parameter.name}: {kind}" + (f" = {default}" if default else ""))
            if parameter.kind == "posonlyargs" and kinds[index + 1 : index + 2] != ["posonlyargs"]:
                parts.append("/")
        return parts

    def _extra_type(self, annotation: ast.expr | None) -> str:
        """The wrapped class's own annotation, Any where it cannot be imported."""
        try:
            self.imports |= importable(self.wrapped.names, [annotation])
        except MigrationError:
            annotation = None
        return self._type(annotation)
