"""Plans how a Protocol's method calls the method that it stands for, so that no parameter is lost."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from migration.code.structure import FunctionNode
from migration.errors import Refusal

#: Stands in the adapter for a default that only the wrapped method knows: what is omitted is not passed.
OWN_DEFAULT = "OWN_DEFAULT"


@dataclass(frozen=True)
class Parameter:
    """One parameter with its default (None: required). `kind` is its place in `ast.arguments`."""

    name: str
    kind: str
    annotation: ast.expr | None
    default: ast.expr | None


@dataclass(frozen=True)
class Forwarding:
    """Signature and call of one method of the adapter, without self.

    `extra` are the parameters of the wrapped method that the Protocol does not have: their annotations
    are to be read in the module of the wrapped class.
    """

    parameters: tuple[tuple[Parameter, str], ...]
    extra: tuple[Parameter, ...]
    arguments: tuple[str, ...]
    uses_own_default: bool


def parameters(node: FunctionNode, skip: int) -> tuple[Parameter, ...]:
    """The parameters of a function in order, without the first `skip` positional ones."""
    arguments = node.args
    positional = [("posonlyargs", arg) for arg in arguments.posonlyargs]
    positional += [("args", arg) for arg in arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    found = [
        Parameter(arg.arg, kind, arg.annotation, default)
        for (kind, arg), default in zip(positional, defaults, strict=True)
    ][skip:]
    if arguments.vararg:
        found.append(Parameter(arguments.vararg.arg, "vararg", arguments.vararg.annotation, None))
    for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(Parameter(arg.arg, "kwonlyargs", arg.annotation, default))
    if arguments.kwarg:
        found.append(Parameter(arguments.kwarg.arg, "kwarg", arguments.kwarg.annotation, None))
    return tuple(found)


def forward(
    member: FunctionNode, wrapped: FunctionNode, bound: int, renamed: Mapping[str, str]
) -> Forwarding | tuple[Refusal, ...]:
    """How `member` (of the Protocol) calls `wrapped`, whose first `bound` parameters the call fills in.

    `renamed` maps parameters of the member to parameters of the wrapped method; the others keep their
    name. Refused: MG525 where a required parameter is out of reach, MG526 where a parameter of the
    member leads nowhere, MG528 where an argument could not be passed as it came.
    """
    plan = _Plan(member, parameters(member, 1), wrapped, parameters(wrapped, bound), dict(renamed))
    plan.connect()
    plan.check_reach()
    return tuple(plan.refusals) if plan.refusals else plan.result()


@dataclass
class _Plan:
    member: FunctionNode
    asked: tuple[Parameter, ...]
    wrapped: FunctionNode
    offered: tuple[Parameter, ...]
    renamed: dict[str, str]
    links: dict[str, Parameter] = field(default_factory=dict)
    loose: dict[str, Parameter] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    def refuse(self, code: str, message: str) -> None:
        self.refusals.append(Refusal(code, self.member.name, self.member.lineno, message))

    def _variable(self, parameters: tuple[Parameter, ...], kind: str) -> Parameter | None:
        return next((parameter for parameter in parameters if parameter.kind == kind), None)

    def connect(self) -> None:
        """Which parameter of the member fills which one of the wrapped method."""
        named = {p.name for p in self.offered if p.kind not in ("vararg", "kwarg")}
        shown = f"{self.wrapped.name}({', '.join(p.name for p in self.offered)})"
        for name in self.renamed.keys() - {p.name for p in self.asked}:
            self.refuse("MG526", f"the mapping names {name}, which {self.member.name} does not have")
        for parameter in self.asked:
            name = self.renamed.get(parameter.name, parameter.name)
            if parameter.kind in ("vararg", "kwarg"):
                if self._variable(self.offered, parameter.kind) is None:
                    stars = "*" if parameter.kind == "vararg" else "**"
                    self.refuse("MG526", f"{stars}{parameter.name} leads nowhere: {shown}")
            elif name in self.links or name in self.loose:
                self.refuse("MG526", f"{parameter.name} and another parameter both lead to {name}")
            elif name in named:
                self.links[name] = parameter
            elif self._variable(self.offered, "kwarg") is not None:
                self.loose[name] = parameter
            else:
                self.refuse("MG526", f"{parameter.name} leads nowhere: {shown}")

    def check_reach(self) -> None:
        """Every parameter of the wrapped method must get a value on every call."""
        taken = {parameter.name for parameter in self.asked}
        for parameter in self.offered:
            link = self.links.get(parameter.name)
            if link is None and parameter.kind not in ("vararg", "kwarg") and parameter.default is None:
                message = f"{parameter.name} of {self.wrapped.name} has no default and nothing leads to it"
                self.refuse("MG525", message)
            elif link is not None and is_open(link.default) and parameter.default is None:
                message = (
                    f"{link.name} may be omitted, but {parameter.name} of {self.wrapped.name} has no default"
                )
                self.refuse("MG525", message)
            elif self._is_extra(parameter) and parameter.name in taken:
                message = (
                    f"{parameter.name} of {self.wrapped.name} needs its own parameter, and the name is taken"
                )
                self.refuse("MG526", message)
            if (
                link is not None
                and link.default is not None
                and not (is_open(link.default) or is_literal(link.default))
            ):
                self.refuse("MG528", f"the default of {link.name} in the Protocol is no literal")
        for name, parameter in self.loose.items():
            if parameter.default is not None and not is_literal(parameter.default):
                self.refuse("MG525", f"{parameter.name} may be omitted, but {name} would have no default")

    def _is_extra(self, parameter: Parameter) -> bool:
        if parameter.kind in ("vararg", "kwarg"):
            return self._variable(self.asked, parameter.kind) is None
        return parameter.name not in self.links

    def _default(self, parameter: Parameter, target: Parameter | None) -> str:
        """Text of a default in the adapter's signature, "" for none."""
        default = parameter.default
        if default is not None and is_open(default) and target is not None:
            default = target.default
        if default is None:
            return ""
        return ast.unparse(default) if is_literal(default) else OWN_DEFAULT

    def result(self) -> Forwarding | tuple[Refusal, ...]:
        by_link = {link.name: name for name, link in self.links.items()}
        targets = {parameter.name: parameter for parameter in self.offered}
        own = [
            (parameter, self._default(parameter, targets.get(by_link.get(parameter.name, ""))))
            for parameter in self.asked
        ]
        extra = [parameter for parameter in self.offered if self._is_extra(parameter)]
        added = [
            (
                parameter
                if parameter.kind in ("vararg", "kwarg")
                else Parameter(parameter.name, "kwonlyargs", parameter.annotation, parameter.default),
                self._default(parameter, None),
            )
            for parameter in extra
        ]
        order = ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg")
        signature = sorted([*own, *added], key=lambda pair: order.index(pair[0].kind))
        defaults = {parameter.name: text for parameter, text in signature}
        arguments = self._arguments(defaults)
        if self.refusals:
            return tuple(self.refusals)
        uses_own_default = OWN_DEFAULT in defaults.values()
        return Forwarding(tuple(signature), tuple(extra), arguments, uses_own_default)

    def _arguments(self, defaults: Mapping[str, str]) -> tuple[str, ...]:
        """The call: by position as long as the order is the member's own, by name from there on."""
        star = self._variable(self.offered, "vararg")
        plain: list[str] = []
        named: list[str] = []
        maybe: list[str] = []
        for parameter in self.offered:
            if parameter.kind in ("vararg", "kwarg"):
                continue
            source = self.links[parameter.name].name if parameter.name in self.links else parameter.name
            own = defaults[source] == OWN_DEFAULT
            # Before *args, and without a name, there is only the position; it cannot be left out either.
            bound = parameter.kind == "posonlyargs" or (parameter.kind == "args" and star is not None)
            if bound and own:
                message = f"the default of {parameter.name} of {self.wrapped.name} is no literal, nor can it be omitted"
                self.refuse("MG528", message)
            elif bound or (
                parameter.kind == "args" and not named and not maybe and not own and self._linked(parameter)
            ):
                plain.append(source)
            elif own:
                maybe.append(f"{parameter.name}={source}")
            else:
                named.append(f"{parameter.name}={source}")
        named += [f"{name}={parameter.name}" for name, parameter in self.loose.items()]
        if star is not None:
            plain.append("*" + (self._variable(self.asked, "vararg") or star).name)
        if maybe:
            named.append(f"**given({', '.join(maybe)})")
        double = self._variable(self.offered, "kwarg")
        if double is not None:
            named.append("**" + (self._variable(self.asked, "kwarg") or double).name)
        return (*plain, *named)

    def _linked(self, parameter: Parameter) -> bool:
        return parameter.name in self.links


def is_open(default: ast.expr | None) -> bool:
    """`= ...` in a Protocol: there is a default, and somebody else says which."""
    return isinstance(default, ast.Constant) and default.value is Ellipsis


def is_literal(node: ast.expr) -> bool:
    """A default that is the same object or an equal, immutable one wherever it is written."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Tuple):
        return all(is_literal(item) for item in node.elts)
    return isinstance(node, ast.Constant) and node.value is not Ellipsis
