"""The two things that a gate adds to the module of the class: its imports and the gate object."""

from __future__ import annotations

import ast
import re

from migration.code.source import Edit, Source, apply_edits, read_source
from migration.code.structure import ClassOutline, top_imports
from migration.move.handler_module import import_lines
from migration.move.names import ImportName
from migration.recipe import Recipe

_RUNTIME = "shadow.experiment"


#: What the gate is told of each method, by its name in the handler: (constructor, arguments).
Effects = dict[str, tuple[str, str]]
#: The names in the handler of the methods of each part.
Parts = dict[str, tuple[str, ...]]


def gate_object(recipe: Recipe, effects: Effects, parts: Parts, unit: str, eol: str) -> str:
    """The assignment of the gate, with the effect of every method and its parts."""
    lines = [
        f"{recipe.gate_name} = Gate(",
        f'{unit}"{recipe.prefix}",',
        f"{unit}{recipe.served[1]},",
        f"{unit}{{",
    ]
    lines += [f'{unit}{unit}"{name}": {kind}({text}),' for name, (kind, text) in effects.items()]
    lines.append(f"{unit}}},")
    if recipe.taped:
        lines.append(f"{unit}taped=({', '.join(map(repr, recipe.taped))},),")
    if parts:
        lines.append(f"{unit}parts={{")
        for part, names in parts.items():
            lines.append(f'{unit}{unit}"{part}": (')
            lines += [f'{unit}{unit}{unit}"{name}",' for name in names]
            lines.append(f"{unit}{unit}),")
        lines.append(f"{unit}}},")
    return "".join(line + eol for line in (*lines, ")"))


def gate_imports(recipe: Recipe, effects: Effects) -> str:
    """Import lines of the handler and of the gate's runtime, with LF line ends."""
    names = {"Gate", *(kind for kind, _ in effects.values())}
    items = [
        ImportName(*recipe.served),
        *(ImportName(_RUNTIME, n) for n in sorted(names)),
    ]
    return import_lines(items, lambda _: True)


def import_position(source: Source) -> int:
    """Byte offset behind the imports at the top of the module, or behind the comments that open it."""
    ends = [node.end_lineno or node.lineno for node in top_imports(source)]
    return source.offset(max([source.head_lines, *ends]) + 1)


def class_position(source: Source, shape: ClassOutline) -> int:
    """Byte offset before the class, its decorators and the comments glued above it."""
    line = min([shape.node.lineno, *(d.lineno for d in shape.node.decorator_list)])
    own = {comment.line for comment in source.comments if comment.own_line}
    while line - 1 in own and line - 1 > source.head_lines:
        line -= 1
    return source.offset(line)


def module_edits(
    source: Source, shape: ClassOutline, recipe: Recipe, effects: Effects, parts: Parts, unit: str
) -> list[Edit]:
    eol = source.eol.decode()
    imports = gate_imports(recipe, effects).replace("\n", eol).encode()
    body = (gate_object(recipe, effects, parts, unit, eol) + eol + eol).encode()
    at, before = import_position(source), class_position(source, shape)
    if at == before:
        return [Edit(at, at, imports + body)]
    return [Edit(at, at, imports), Edit(before, before, body)]


def without_gate(recipe: Recipe, data: bytes) -> bytes:
    """The module without the lines that `module_edits` added."""
    source = read_source(recipe.source_file, data)
    edits: list[Edit] = []
    for node in source.tree.body:
        end = source.offset((node.end_lineno or node.lineno) + 1)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == recipe.gate_name:
            blank = re.match(rb"(?:[ \t]*(?:\r\n|\r|\n)){0,2}", data[end:])
            edits.append(Edit(source.offset(node.lineno), end + (blank.end() if blank else 0), b""))
        elif isinstance(node, ast.ImportFrom) and _is_ours(node, recipe):
            edits.append(Edit(source.offset(node.lineno), end, b""))
    return apply_edits(data, edits)


def _is_ours(node: ast.ImportFrom, recipe: Recipe) -> bool:
    names = [alias.name for alias in node.names]
    module, name = recipe.served
    if node.module == module:
        return names == [name]
    return node.module == _RUNTIME and "Gate" in names
