"""The bytes of each test of a declared attribute, and what they become."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from migration.code.source import Edit, Source
from migration.code.structure import ClassOutline
from migration.presence.findings import HasattrFinding
from migration.presence.places import is_operand


class Tests:
    """The calls of a class by their places, with what stands around them."""

    def __init__(self, source: Source, shape: ClassOutline) -> None:
        self._source = source
        nodes = list(ast.walk(shape.node))
        self._parents = {id(child): part for part in nodes for child in ast.iter_child_nodes(part)}
        self._calls = {(node.lineno, node.col_offset): node for node in nodes if isinstance(node, ast.Call)}

    def edits(self, findings: Iterable[HasattrFinding], *, declared: bool) -> Iterator[Edit]:
        """What replaces the tests of one attribute; `declared`: None or a default stands for "not there yet"."""
        for finding in findings:
            call = self._calls[finding.line, finding.column]
            if not declared:
                assert finding.rewrite.text is not None
                yield self._edit(call, finding.rewrite.text)
            elif finding.kind == "getattr":
                yield self._edit(call, f"{ast.unparse(call.args[0])}.{finding.attribute}")
            else:
                yield self._is_there(call, f"{ast.unparse(call.args[0])}.{finding.attribute}")

    def _is_there(self, call: ast.Call, attribute: str) -> Edit:
        negated = self._parents[id(call)]
        if isinstance(negated, ast.UnaryOp) and isinstance(negated.op, ast.Not) and self._is_short(negated):
            return self._edit(negated, f"{attribute} is None")
        text = f"{attribute} is not None"
        return self._edit(call, f"({text})" if is_operand(call, self._parents) else text)

    def _is_short(self, node: ast.expr) -> bool:
        """On one line, and where its position says that it is."""
        if node.lineno != node.end_lineno:
            return False
        text = self._source.segment(node).decode()
        try:
            return ast.dump(ast.parse(text, mode="eval").body) == ast.dump(node)
        except (SyntaxError, ValueError):
            return False

    def _edit(self, node: ast.expr, text: str) -> Edit:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._source.offset(node.lineno, node.col_offset)
        end = self._source.offset(node.end_lineno, node.end_col_offset)
        following = self._source.data[end : end + 1]
        room = b" " if following.isalnum() or following == b"_" or following >= b"\x80" else b""
        return Edit(start, end, text.encode() + room)
