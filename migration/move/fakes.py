"""Strict fakes for the Protocols of a module, as the text of a tests module that stands on its own."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

from migration.errors import MigrationError
from migration.move.handler_module import import_lines
from migration.move.names import ImportName
from migration.move.protocol_classes import (
    ProtocolClass,
    ProtocolMember,
    ProtocolModule,
    annotations_of,
)

_WIDTH = 110
_SUPPORT = Path(__file__).with_name("fake_support.py")
_MARK = "# --- copied from here on ---\n"


def fake_text(protocols: ProtocolModule, is_first_party: Callable[[str], bool]) -> str:
    """A module with one `Fake<Protocol>` for each Protocol of a module; LF line ends.

    A fake has the members of its Protocol and nothing else: attributes in `__slots__`, methods that pass
    each call to the callable that the test gave and record it (`calls_of`). What is unknown, not given or
    read-only is an AttributeError that says so. `assert_conforms(Protocol, value)` is for fake and real
    object alike, and a type checker holds each fake against its Protocol.

    MG527 where the module has no Protocol, or a name in it cannot be imported; MG529 where the names of
    the fakes are taken.
    """
    found = protocols.protocols
    if not found:
        raise MigrationError("MG527", f"{protocols.module} has no Protocol class")
    support = _support()
    imports = {ImportName(protocols.module, protocol.name) for protocol in found}
    for protocol in found:
        for member in protocol.members:
            annotations = annotations_of(member.node) if member.node else [member.annotation]
            imports |= protocols.imports(annotations)
    runtime = set(_imports(support))
    if any(member.node for protocol in found for member in protocol.members):
        runtime.add(ImportName("collections.abc", "Callable"))
    imports -= runtime
    _check_names(found, imports, support, runtime)
    runtime |= {item for item in imports if item.module in ("typing", "collections.abc")}
    imports -= runtime
    body = support[support.index(_MARK) + len(_MARK) :]
    parts = [
        f'"""Strict fakes of the Protocols in {protocols.module}: their members and nothing else. Generated."""',
        "from __future__ import annotations",
        import_lines(runtime, is_first_party).strip("\n"),
        "if TYPE_CHECKING:\n" + import_lines(imports, is_first_party, "    ").strip("\n"),
    ]
    checks = "\n\n".join(["if TYPE_CHECKING:  # each fake is held against its Protocol", *map(_check, found)])
    classes = [body.strip("\n"), *(_fake(protocol, protocols.module) for protocol in found), checks]
    return "\n\n".join(parts) + "\n\n\n" + "\n\n\n".join(classes) + "\n"


def _support() -> str:
    return _SUPPORT.read_text(encoding="utf-8")


def _imports(support: str) -> list[ImportName]:
    found: list[ImportName] = []
    for node in ast.parse(support).body:
        if isinstance(node, ast.Import):
            found += [ImportName(alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            found += [ImportName(node.module, alias.name) for alias in node.names]
    return found


def _check_names(
    found: tuple[ProtocolClass, ...], imports: set[ImportName], support: str, runtime: set[ImportName]
) -> None:
    """MG529 where one name would mean two things in the fakes' module."""
    own = [getattr(node, "name", "") for node in ast.parse(support).body]
    own += [_name(protocol) for protocol in found] + ["NOT_GIVEN"] + [item.bound for item in runtime]
    bound: dict[str, ImportName] = {}
    for item in sorted(imports):
        other = bound.setdefault(item.bound, item)
        if item.bound in own or (other != item and (item.name or other.name)):
            raise MigrationError("MG529", f"{item.bound} from {item.module}")
    for protocol in found:
        if own.count(_name(protocol)) > 1:
            raise MigrationError("MG529", f"{_name(protocol)} for {protocol.name}")


def _name(protocol: ProtocolClass) -> str:
    return f"Fake{protocol.name}"


def _fake(protocol: ProtocolClass, module: str) -> str:
    attributes = [member for member in protocol.members if member.node is None]
    methods = [member for member in protocol.members if member.node is not None]
    readonly = [member.name for member in attributes if not member.writable]
    shape = [f'protocol="{module}.{protocol.name}"']
    shape += [f"readonly={_names(readonly)}"] if readonly else []
    shape += [f"methods={_names([member.name for member in methods])}"] if methods else []
    lines = [
        *_fitted(f"class {_name(protocol)}(", ["StrictFake", *shape], "):", ""),
        f'    """Fake of {protocol.name}; a member that is not given raises NotGiven when it is used."""',
        "",
        f"    __slots__ = {_names(sorted(member.name for member in attributes))}",
        *([""] if attributes else []),
        *(f"    {member.name}: {_type(member.annotation)}" for member in attributes),
        "",
        *_init(protocol),
    ]
    for member in methods:
        lines += ["", *_method(member)]
    return "\n".join(lines)


def _names(names: list[str]) -> str:
    return "(" + "".join(f'"{name}", ' for name in names).removesuffix(" " if len(names) == 1 else ", ") + ")"


def _type(annotation: ast.expr | None) -> str:
    return ast.unparse(annotation) if annotation is not None else "Any"


def _fitted(head: str, parts: list[str], tail: str, indent: str) -> list[str]:
    """One line, or one line a part where that is too long."""
    line = f"{indent}{head}{', '.join(parts)}{tail}"
    if len(line) <= _WIDTH:
        return [line]
    return [f"{indent}{head}", *(f"{indent}    {part}," for part in parts), f"{indent}{tail}"]


def _init(protocol: ProtocolClass) -> list[str]:
    parameters = []
    for member in protocol.members:
        kind = f"Callable[..., {_result(member.node)}]" if member.node else _type(member.annotation)
        parameters.append(f"{member.name}: {kind} = NOT_GIVEN")
    given = [f"{member.name}={member.name}" for member in protocol.members]
    return [
        *_fitted(
            "def __init__(", ["self", *(["*", *parameters] if parameters else [])], ") -> None:", "    "
        ),
        *_fitted("super().__init__(", given, ")", "        "),
    ]


def _result(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """What the callable for a method may return: of an `async def` the awaitable or the value itself."""
    return "Any" if isinstance(node, ast.AsyncFunctionDef) else _type(node.returns)


def _method(member: ProtocolMember) -> list[str]:
    node = member.node
    assert node is not None
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    names = [arg.arg for arg in positional[1:]]
    passed = ["self", f'"{member.name}"']
    if names:
        pairs = ", ".join(f'("{name}", {name})' for name in names)
        passed.append(f"({pairs}{',' * (len(names) == 1)})")
    if arguments.vararg:
        passed.append(arguments.vararg.arg if names else f"rest={arguments.vararg.arg}")
    named = [f'"{arg.arg}": {arg.arg}' for arg in arguments.kwonlyargs]
    named += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    if named:
        passed.append(f"named={{{', '.join(named)}}}")
    asynchronous = isinstance(node, ast.AsyncFunctionDef)
    result = _type(node.returns)
    call = ("await answer_async(" if asynchronous else "answer(", passed, ")", "        ")
    if result == "None":
        body = _fitted(*call)
    elif result == "Any":
        body = _fitted("return " + call[0], *call[1:])
    else:
        body = [*_fitted(f"result: {result} = {call[0]}", *call[1:]), "        return result"]
    head = f"{'async ' * asynchronous}def {member.name}("
    return [*_fitted(head, _parameters(arguments), f") -> {result}:", "    "), *body]


def _parameters(arguments: ast.arguments) -> list[str]:
    """The Protocol's parameters; each default becomes NOT_GIVEN, so that what was not passed stays so."""
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    parts: list[str] = []
    for index, arg in enumerate(positional):
        text = f"{arg.arg}: {_type(arg.annotation)}" if index else arg.arg
        parts.append(text + " = NOT_GIVEN" * (index >= first_default))
        if index + 1 == len(arguments.posonlyargs):
            parts.append("/")
    if arguments.vararg:
        parts.append(f"*{arguments.vararg.arg}: {_type(arguments.vararg.annotation)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parts.append(f"{arg.arg}: {_type(arg.annotation)}" + " = NOT_GIVEN" * (default is not None))
    if arguments.kwarg:
        parts.append(f"**{arguments.kwarg.arg}: {_type(arguments.kwarg.annotation)}")
    return parts


def _check(protocol: ProtocolClass) -> str:
    name = protocol.name
    return f"    def _{name}(fake: {_name(protocol)}) -> {name}:\n        return fake"
