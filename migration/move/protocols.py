"""Minimal Protocols of the handles: the members that moved code uses, typed from evidence in the class."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from migration.code.copies import copy_tree
from migration.code.facts import READING, WRITING, MethodFacts, SelfUse, dotted, is_static, statements
from migration.code.structure import ClassOutline, FunctionNode
from migration.literal_protocols import class_text
from migration.move.literal import Literal, literal_members
from migration.move.members import Member
from migration.move.moving import mangled
from migration.move.names import ImportName, ModuleNames, type_names
from migration.move.traced import with_trace
from migration.move.used_members import used_member
from migration.recipe import HandleSpec, Recipe
from migration.trace.types import Traced, TracedTypes

_LITERALS = {int: "int", str: "str", float: "float", bool: "bool", bytes: "bytes", type(None): "None"}
_DISPLAYS: dict[type[ast.expr], str] = {
    ast.List: "list[Any]",
    ast.ListComp: "list[Any]",
    ast.Dict: "dict[Any, Any]",
    ast.DictComp: "dict[Any, Any]",
    ast.Set: "set[Any]",
    ast.SetComp: "set[Any]",
}
_CALLS = {"list": "list[Any]", "dict": "dict[Any, Any]", "set": "set[Any]"} | {
    name: name for name in ("int", "str", "float", "bool", "bytes")
}

_NEEDS_MEMBER = READING | WRITING | {"delete"}


@dataclass(frozen=True)
class Handle:
    """A handle with its members; `whole` cites where the object itself is passed on."""

    spec: HandleSpec
    members: tuple[Member, ...]
    whole: tuple[str, ...] = ()
    #: The Protocol that the recipe gives, with what it needs.
    literal: Literal | None = None


class MemberTypes:
    """What the class body says about the type of each attribute, and a trace where the class leaves it open."""

    def __init__(
        self,
        outline: ClassOutline,
        facts: Mapping[int, MethodFacts],
        names: ModuleNames,
        traced: TracedTypes | None = None,
    ) -> None:
        self.names = names
        self._traced = traced
        self._seen: list[str] = []
        self.imports: set[ImportName] = set()
        self._needs: dict[str, set[ImportName]] = {}
        self._annotated: dict[str, ast.expr] = {}
        self._values: dict[str, list[tuple[ast.expr, FunctionNode | None]]] = {}
        self._class_level: set[str] = set()
        self._writes: dict[str, int] = {}
        self._init: set[str] = set()
        self._methods = {method.name: method.node for method in reversed(outline.methods)}
        self._private: dict[str, str] = {}
        for statement in outline.node.body:
            self._note(statement, None, None)
        for method in outline.methods:
            found = facts[id(method.node)]
            for node in statements(method.node):
                self._note(node, found.self_name, method.node)
            for use in found.uses:
                if use.attribute and (private := mangled(use.attribute, outline.name)) != use.attribute:
                    self._private[private] = use.attribute
                if use.attribute and use.kind in ("write", "setattr"):
                    self._writes[use.attribute] = self._writes.get(use.attribute, 0) + 1
                    if method.name == "__init__":
                        self._init.add(use.attribute)

    def _note(self, node: ast.AST, self_name: str | None, method: FunctionNode | None) -> None:
        if isinstance(node, ast.AnnAssign):
            targets: list[ast.expr] = [node.target]
            value: ast.expr | None = node.value
        elif isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        else:
            return
        for target in targets:
            if method is None and isinstance(target, ast.Name):
                name = target.id
                self._class_level.add(name)
            elif (
                method is not None
                and isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == self_name
            ):
                name = target.attr
            else:
                continue
            if isinstance(node, ast.AnnAssign):
                self._annotated.setdefault(name, node.annotation)
            if value is not None:
                self._values.setdefault(name, []).append((value, method))

    def is_lazy(self, name: str) -> bool:
        """Created outside __init__: hasattr() is False until then."""
        declared = name in self._init or name in self._class_level or name in self._methods
        return name in self._writes and not declared

    def of(self, name: str) -> tuple[str, str]:
        """(type text, evidence) of an attribute; Any when neither class nor trace says."""
        return self._filled(*self._of(name), self._traced.type_of(name) if self._traced else None)

    def _filled(self, text: str, evidence: str, traced: Traced | None) -> tuple[str, str]:
        text, found, imports = with_trace(text, evidence, traced, self.names)
        self.imports |= imports
        if traced is not None and found == traced.evidence:
            self._seen.append(found)
        return text, found

    def _of(self, name: str) -> tuple[str, str]:
        if name in self._annotated:
            text = self._importable(self._annotated[name])
            return self._written(text), "annotation" if text else "annotation is not importable"
        values = self._values.get(name, [])
        at_class = sum(method is None for _, method in values)
        if len(values) - at_class != self._writes.get(name, 0):
            return "Any", "bound by unpacking, loops or setattr"
        kinds = [self._value_type(value, method) for value, method in values]
        texts = sorted({text for text in kinds if text})
        if not texts or None in kinds or texts == ["None"]:
            return "Any", "no evidence"
        plain = [text for text in texts if text != "None"]
        if len(plain) > 1:
            return "Any", "assigned " + ", ".join(plain)
        optional = "None" in texts and "None" not in plain[0] and not plain[0].startswith("Optional[")
        return self._written(plain[0]) + (" | None" if optional else ""), "assignment"

    def _importable(self, annotation: ast.expr) -> str | None:
        found: set[ImportName] = set()
        for name in type_names(annotation):
            imports = self.names.type_import(name)
            if imports is None:
                return None
            found.update(imports)
        try:
            text = ast.unparse(_Unquoted().visit(copy_tree(annotation)))
        except SyntaxError:
            return None
        self._needs.setdefault(text, set()).update(found)
        return text

    def _written(self, text: str | None) -> str:
        """`text` as it goes into the module, with its imports noted; Any for None."""
        self.imports |= self._needs.get(text or "", set())
        return text or "Any"

    def _value_type(self, value: ast.expr, method: FunctionNode | None) -> str | None:
        if isinstance(value, ast.Constant):
            return _LITERALS.get(type(value.value))
        if type(value) in _DISPLAYS:
            return _DISPLAYS[type(value)]
        if isinstance(value, ast.Name) and method is not None:
            arguments = method.args
            for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if arg.arg == value.id and arg.annotation is not None and not _rebinds(method, value.id):
                    return self._importable(arg.annotation)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            name = value.func.id
            if name in _CALLS:
                return _CALLS[name]
            bindings = self.names.bindings.get(name, [])
            if len(bindings) == 1 and isinstance(bindings[0].node, ast.ClassDef):
                return self._importable(value.func)
        return None

    def signature(self, node: FunctionNode, indent: str, name: str, width: int = 110) -> str:
        """`def` lines of a Protocol method with the exact parameters; what is not annotated is Any."""
        head = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        parts = self._parameters(node, typed_first=is_static(node))
        if is_static(node):
            parts.insert(0, "self")
        plain = is_static(node) or not node.decorator_list  # any other decorator may change what comes back
        result = self._written(self._importable(node.returns) if node.returns and plain else None)
        if plain and node.returns is None:
            result, _ = self._filled(result, "", self._traced.return_of(node.name) if self._traced else None)
        line = f"{indent}{head} {name}({', '.join(parts)}) -> {result}: ..."
        if len(line) <= width:
            return line
        inner = "".join(f"{indent}    {part},\n" for part in parts)
        return f"{indent}{head} {name}(\n{inner}{indent}) -> {result}: ..."

    def _parameters(self, node: FunctionNode, *, typed_first: bool) -> list[str]:
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        first_default = len(positional) - len(arguments.defaults)
        parts: list[str] = []
        for index, arg in enumerate(positional):
            text = self._parameter(node, arg) if index or typed_first else arg.arg
            parts.append(text + (" = ..." if index >= first_default else ""))
            if index + 1 == len(arguments.posonlyargs):
                parts.append("/")
        if arguments.vararg:
            parts.append("*" + self._parameter(node, arguments.vararg, "*"))
        elif arguments.kwonlyargs:
            parts.append("*")
        for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            parts.append(self._parameter(node, arg) + (" = ..." if default is not None else ""))
        if arguments.kwarg:
            parts.append("**" + self._parameter(node, arguments.kwarg, "**"))
        return parts

    def _parameter(self, node: FunctionNode, arg: ast.arg, stars: str = "") -> str:
        text = self._written(self._importable(arg.annotation) if arg.annotation else None)
        if arg.annotation is None and self._traced is not None:
            text, _ = self._filled(text, "", self._traced.parameter_of(node.name, stars + arg.arg))
        return f"{arg.arg}: {text}"

    def member(self, name: str, uses: Iterable[tuple[str, SelfUse]]) -> Member:
        """The Protocol member for all uses of one attribute."""
        cited = tuple(uses)
        written = any(use.kind in WRITING or use.kind in ("delete", "delattr") for _, use in cited)
        used_by = tuple(f"{method}:{use.line}" for method, use in cited)
        own = self._private.get(name, name)
        node = self._methods.get(own)
        decorators = [dotted(d) for d in node.decorator_list] if node is not None else []
        is_property = any(decorator.endswith("property") for decorator in decorators)
        if node is not None and not written and not is_property:
            self._seen.clear()
            text = self.signature(node, "    ", name)
            evidence = ", ".join(["definition", *dict.fromkeys(self._seen)])
            return Member(name, text, False, False, evidence, used_by)
        if node is not None and is_property:
            text, evidence = (
                self._written(self._importable(node.returns) if node.returns else None),
                "property",
            )
            text, evidence = self._filled(text, evidence, self._traced.type_of(own) if self._traced else None)
        else:
            text, evidence = self.of(own)
        body = f"    {name}: {text}" if written else f"    @property\n    def {name}(self) -> {text}: ..."
        return Member(name, body, written, self.is_lazy(own), evidence, used_by)


class _Unquoted(ast.NodeTransformer):
    """String annotations as the expressions that they spell; the arguments of Literal are left alone."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return node if dotted(node.value).rpartition(".")[2] == "Literal" else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


def _rebinds(method: FunctionNode, name: str) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(method)
    )


def handles(
    recipe: Recipe,
    uses: Iterable[tuple[str, str, SelfUse]],
    types: MemberTypes,
    *,
    literals: Mapping[str, Literal] | None = None,
    always: bool = False,
) -> tuple[Handle, ...]:
    """The handles of a recipe with their members, in the recipe's order; unused handles are left out, but for
    the request, by which others may call the handler.

    `uses` are (handle, method, use); `literals` are the Protocols that the recipe gives, by handle.
    `always` keeps the host even so (`super()` needs it).
    """
    placed: dict[str, dict[str | None, list[tuple[str, SelfUse]]]] = {}
    for handle, method, use in uses:
        placed.setdefault(handle, {}).setdefault(use.attribute, []).append((method, use))
    found: list[Handle] = []
    for spec in recipe.handles:
        if spec.name in placed or spec.request or (spec.rest and always):
            literal = (literals or {}).get(spec.name)
            found.append(_handle(spec, placed.get(spec.name, {}), types, literal))
    return tuple(found)


def _handle(
    spec: HandleSpec,
    uses: Mapping[str | None, list[tuple[str, SelfUse]]],
    types: MemberTypes,
    literal: Literal | None,
) -> Handle:
    whole = tuple(dict.fromkeys(f"{method}:{use.line}" for method, use in uses.get(None, ())))
    if literal is not None:
        every = [pair for pairs in uses.values() for pair in pairs]
        return Handle(spec, literal_members(literal, every), whole, literal)
    members: list[Member] = []
    for name in sorted(name for name in uses if name is not None):
        # hasattr() alone needs no member: the question is put to the object.
        asked = any(use.kind in _NEEDS_MEMBER for _, use in uses[name])
        if not asked or hasattr(object, name):
            continue
        if spec.is_worker:
            members.append(types.member(name, uses[name]))
        else:
            where = spec.expressions[0] if spec.expressions else spec.adapter
            members.append(used_member(name, uses[name], where))
    return Handle(spec, tuple(members), whole)


def protocol_text(handle: Handle) -> str:
    """Source of one Protocol; attributes that the handler writes are plain, the others read-only.

    One that the recipe gives word for word is left so; "" for one that is imported.
    """
    if handle.spec.is_given:
        text = handle.spec.protocol_text
        return class_text(text, handle.spec.protocol) if text else ""
    lazy = [member.name for member in handle.members if member.lazy]
    doc = f'    """{handle.spec.doc}'
    notes = []
    if lazy:
        notes.append(f"Created on first use, so hasattr() may be False: {', '.join(lazy)}.")
    if handle.whole:
        what = "worker" if handle.spec.is_worker else "object"
        notes.append(f"Passed on whole, so it must be the {what} itself: {', '.join(handle.whole)}.")
    for note in notes:
        doc += "\n\n" + textwrap.fill(note, 106, initial_indent="    ", subsequent_indent="    ")
    parts = [f"class {handle.spec.protocol}(Protocol):", doc + ("\n    " if notes else "") + '"""']
    attributes = [member.text for member in handle.members if member.written]
    if attributes:
        parts += ["", *attributes]
    for member in handle.members:
        if not member.written:
            parts += ["", member.text]
    return "\n".join(parts) + "\n"
