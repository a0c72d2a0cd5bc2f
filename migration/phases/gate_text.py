"""Text of a gated class: each legacy body under the name `_legacy_<name>`, the public name a gate; and back.

    def free(self, n):                  def free(self, n):
        ...                  ->             if _KV_GATE.on:
                                                return _KV_GATE.run(self, "free", n)
                                            return self._legacy_free(n)

                                        def _legacy_free(self, n):
                                            ...

Decorators that could not move with the body (`property`) go to the gate; all others stay on the body.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from migration.code.source import Edit, Source
from migration.code.structure import ClassOutline, Method
from migration.move.moving import Moving, moved_name, yields
from migration.move.others import LEGACY
from migration.move.rewrite import forwarded, indent_unit, signature_text
from migration.recipe import Recipe


def gate_edits(source: Source, recipe: Recipe, moving: Sequence[Moving]) -> Iterator[Edit]:
    """The edits of the class body; all of them inside the blocks of the methods."""
    for one in moving:
        node, first = one.node, one.method.first_line
        start, head = source.offset(first), source.offset(node.lineno)
        decorators = source.data[start:head] if one.staying else b""
        kept = b"" if one.staying else source.data[start:head]
        binding = _binding(one)
        if binding and one.staying:
            kept = source.indent_of(first) + binding + source.eol
        elif binding:
            decorators = source.indent_of(first) + binding + source.eol
        text = decorators + _gate(source, recipe, one) + source.eol + kept
        yield Edit(start, head, text)
        name = source.offset(node.lineno, one.name_column)
        yield Edit(name, name + len(node.name.encode()), f"{LEGACY}{one.name}".encode())


def _binding(one: Moving) -> bytes:
    """The decorator that says what the first argument is: gate and body both need it."""
    names = {d.id for d in one.node.decorator_list if isinstance(d, ast.Name)}
    return next((b"@" + name.encode() for name in ("staticmethod", "classmethod") if name in names), b"")


def _is_static(one: Moving) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in one.node.decorator_list)


def _gate(source: Source, recipe: Recipe, one: Moving) -> bytes:
    node = one.node
    indent = source.indent_of(one.method.first_line).decode()
    unit, eol = indent_unit(source, node, indent), source.eol.decode()
    static = _is_static(one)
    owner = recipe.source_class if static else one.facts.self_name
    arguments = forwarded(node, skip_first=not static)
    waits = isinstance(node, ast.AsyncFunctionDef) and not (yields(node) or one.is_managed)
    runs = "run_async" if waits else "run"
    passed = ", ".join([f'{owner}, "{one.name}"', *arguments])
    native, legacy = (
        f"{recipe.gate_name}.{runs}({passed})",
        f"{owner}.{LEGACY}{one.name}({', '.join(arguments)})",
    )
    if waits:
        native, legacy = f"await {native}", f"await {legacy}"
    elif yields(node) and isinstance(node, ast.FunctionDef) and not one.is_managed:
        native, legacy = f"(yield from {native})", f"(yield from {legacy})"
    signature = signature_text(source, node).decode()
    if isinstance(node, ast.AsyncFunctionDef) and not waits:
        signature = signature.removeprefix("async").lstrip()
    docstring = ""
    if one.staying and isinstance(text := getattr(node.body[0], "value", None), ast.Constant):
        if isinstance(text.value, str):
            docstring = f"{indent}{unit}{source.segment(node.body[0]).decode()}{eol}"
    lines = (
        f"{indent}{signature}:{eol}",
        docstring,
        f"{indent}{unit}if {recipe.gate_name}.on:{eol}",
        f"{indent}{unit}{unit}return {native}{eol}",
        f"{indent}{unit}return {legacy}{eol}",
    )
    return "".join(lines).encode()


def gated(shape: ClassOutline, recipe: Recipe) -> dict[str, tuple[Method, Method]]:
    """(gate, legacy body) by the method's name in the handler, for every method that is gated."""
    legacy = {m.name.removeprefix(LEGACY): m for m in shape.methods if m.name.startswith(LEGACY)}
    return {
        name: (method, legacy[name])
        for method in shape.methods
        if (name := moved_name(method, recipe.source_class)) in legacy
        and not method.name.startswith(LEGACY)
        and recipe.gate_name in {n.id for n in ast.walk(method.node) if isinstance(n, ast.Name)}
    }


def ungate_edits(source: Source, pairs: dict[str, tuple[Method, Method]]) -> Iterator[Edit]:
    """The inverse of `gate_edits`."""
    for gate, legacy in pairs.values():
        own = source.data[source.offset(gate.first_line) : source.offset(gate.node.lineno)]
        plain = all(isinstance(d, ast.Name) and d.id == "staticmethod" for d in gate.node.decorator_list)
        kept = source.data[source.offset(legacy.first_line) : source.offset(legacy.node.lineno)]
        head = kept if plain else own
        yield Edit(source.offset(gate.first_line), source.offset(legacy.node.lineno), head)
        words = "async def " if isinstance(legacy.node, ast.AsyncFunctionDef) else "def "
        name = source.offset(legacy.node.lineno, legacy.node.col_offset + len(words))
        yield Edit(name, name + len(legacy.name.encode()), gate.name.encode())
