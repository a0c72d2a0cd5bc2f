"""The two things that a gate adds to the module of the class: its imports and the gate object."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from migration.code.source import Edit, Source, apply_edits, read_source
from migration.code.structure import ClassOutline, top_imports
from migration.move.handler_module import import_lines
from migration.move.names import ImportName
from migration.move.worker_imports import RUNTIME, gate_objects, runtime_imports
from migration.recipe import Recipe

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
    for name, values in (("taped", recipe.taped), ("callbacks", recipe.callbacks), ("shared", recipe.shared)):
        if values:
            lines.append(f"{unit}{name}=({', '.join(map(repr, values))},),")
    if parts:
        lines.append(f"{unit}parts={{")
        for part, names in parts.items():
            lines.append(f'{unit}{unit}"{part}": (')
            lines += [f'{unit}{unit}{unit}"{name}",' for name in names]
            lines.append(f"{unit}{unit}),")
        lines.append(f"{unit}}},")
    return "".join(line + eol for line in (*lines, ")"))


def runtime_names(effects: Effects) -> dict[str, ImportName]:
    """The names that the gate object needs of the runtime, each with its import."""
    return {name: ImportName(RUNTIME, name) for name in {"Gate", *(kind for kind, _ in effects.values())}}


def _runtime_lines(names: Iterable[str]) -> bytes:
    return import_lines((ImportName(RUNTIME, name) for name in names), lambda _: True).encode()


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
    source: Source,
    shape: ClassOutline,
    recipe: Recipe,
    handler_line: int,
    effects: Effects,
    parts: Parts,
    unit: str,
) -> list[Edit]:
    """Imports and gate object of the slice. What other gates of the module have imported is used, and each
    thing has one place, so that the module is the same whichever slice was gated first."""
    eol = source.eol.decode()

    def with_eol(lines: bytes) -> bytes:
        return lines.replace(b"\n", source.eol)

    handler = with_eol(import_lines([ImportName(*recipe.served)], lambda _: True).encode())
    imports, after = source.offset(handler_line), import_position(source)
    there = runtime_imports(source)
    wanted = runtime_names(effects).keys() - {alias.name for node in there for alias in node.names}
    edits: list[Edit] = []
    runtime = b""
    if ours := [node for node in there if _spelled(source, node) == with_eol(_named(node))] if wanted else []:
        names = wanted | {alias.name for alias in ours[0].names}
        edits.append(_in_place_of(source, ours[0], with_eol(_runtime_lines(names))))
    elif wanted:
        runtime = with_eol(_runtime_lines(wanted))
    body = (gate_object(recipe, effects, parts, unit, eol) + eol + eol).encode()
    before = gate_position(source, shape, recipe)
    texts: dict[int, bytes] = {}
    for at, text in ((imports, handler), (after, runtime), (before, body)):
        texts[at] = texts.get(at, b"") + text
    return [*edits, *(Edit(at, at, text) for at, text in texts.items() if text)]


def gate_position(source: Source, shape: ClassOutline, recipe: Recipe) -> int:
    """Byte offset before the class, among the gates that stand there in the order of their names."""
    end = class_position(source, shape)
    gates = gate_objects(source)
    later = [
        node for name, node in gates.items() if name > recipe.gate_name and source.offset(node.lineno) < end
    ]
    for node in reversed(source.tree.body):
        if source.offset(node.lineno) < end:
            if node not in later:
                break
            end = source.offset(node.lineno)
    return end


def _named(node: ast.ImportFrom) -> bytes:
    return _runtime_lines(alias.name for alias in node.names)


def _spelled(source: Source, node: ast.stmt) -> bytes:
    return source.data[source.offset(node.lineno) : source.offset((node.end_lineno or node.lineno) + 1)]


def _in_place_of(source: Source, node: ast.stmt, text: bytes) -> Edit:
    return Edit(source.offset(node.lineno), source.offset((node.end_lineno or node.lineno) + 1), text)


def without_gate(recipe: Recipe, data: bytes) -> bytes:
    """The module without what `module_edits` added; what anything else in it uses of the runtime stays."""
    source = read_source(recipe.source_file, data)
    gate = gate_objects(source).get(recipe.gate_name)
    edits: list[Edit] = []
    own: set[str] = set()
    if gate is not None:
        edit = _in_place_of(source, gate, b"")
        blank = re.match(rb"(?:[ \t]*(?:\r\n|\r|\n)){0,2}", data[edit.end :])
        edits.append(Edit(edit.start, edit.end + (blank.end() if blank else 0), b""))
        words = re.compile(rb"\b(?:" + "|".join(sorted(_names(gate))).encode() + rb")\b")
        others = (n for n in source.tree.body if n is not gate and words.search(_spelled(source, n)))
        own = _names(gate) - {name for node in others for name in _names(node)}
    for node in source.tree.body:
        if isinstance(node, ast.ImportFrom) and _brings(node, *recipe.served):
            edits.append(_in_place_of(source, node, b""))
    for node in runtime_imports(source):
        names = [alias.name for alias in node.names]
        if own & set(names):
            left = [name for name in names if name not in own]
            text = _runtime_lines(left).replace(b"\n", source.eol) if left else b""
            edits.append(_in_place_of(source, node, text))
    return apply_edits(data, edits)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _brings(node: ast.ImportFrom, module: str, name: str) -> bool:
    return node.module == module and [alias.name for alias in node.names] == [name]
