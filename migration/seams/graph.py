"""A class as a graph: which method uses which attribute, and which method calls which."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from migration.code.facts import READING, WRITING
from migration.code.import_roots import import_root
from migration.code.source import Source, read_source
from migration.code.structure import ClassOutline, Method, outline
from migration.code.tree import Tree
from migration.errors import MigrationError
from migration.move.cut import module_names, movings
from migration.move.delegates import is_delegate
from migration.move.moving import Moving, is_overload, mangled
from migration.recipe import Recipe, host_handle

#: Methods that set the object up: what only they and a cluster use is the cluster's own.
SETUP = frozenset(("__init__", "__new__", "__post_init__", "__init_subclass__", "__del__"))
_CHANGING = frozenset(
    re.findall(
        r"\w+",
        "add append appendleft clear copy_ difference_update discard extend extendleft fill_ get_nowait insert "
        "intersection_update pop popitem popleft put remove reverse rotate setdefault sort update zero_",
    )
)
_OF_ARRAYS = re.findall(
    r"\w+",
    "all any clone cpu cuda dim empty float item max min numel numpy reshape size sum to tolist unsqueeze view",
)
#: Methods of containers, strings and arrays: an attribute that is only asked for these is data.
_OF_VALUES = _CHANGING.union(_OF_ARRAYS, *(dir(kind) for kind in (list, dict, set, str, bytes, deque)))
_MEMBER = READING | WRITING | {"delete"}


@dataclass(frozen=True)
class Node:
    """All definitions of one name: a recipe moves them together.

    `attributes` need a member of a Protocol, `mentioned` are also those that are only asked for by
    `hasattr`. `calls` are methods of the class that moved code may call on the handler itself; `refers`
    are those that it reaches through the worker (properties, bound methods passed on, decorated ones).
    `asked` are attributes whose methods are called (`self.pool.take()`), `changed` those whose object is
    changed in place, `probed` those that are asked for or set by name; `whole` is True where self itself is
    passed on.
    """

    name: str
    methods: tuple[Method, ...]
    lines: int
    section: str | None
    attributes: frozenset[str]
    mentioned: frozenset[str]
    written: frozenset[str]
    asked: frozenset[str]
    changed: frozenset[str]
    probed: frozenset[str]
    calls: frozenset[str]
    refers: frozenset[str]
    whole: bool

    @property
    def line(self) -> int:
        return self.methods[0].first_line


@dataclass(frozen=True)
class ClassGraph:
    """`nodes` in their order in the file; `early` are attributes that the class body or the set-up writes,
    `late` those that other methods write."""

    source: Source
    shape: ClassOutline
    import_root: str
    nodes: Mapping[str, Node]
    early: frozenset[str]
    late: frozenset[str]

    @cached_property
    def users(self) -> Mapping[str, frozenset[str]]:
        """The methods that use an attribute once the object is set up."""
        found: dict[str, set[str]] = {}
        for node in self.nodes.values():
            for attribute in node.mentioned | node.written:
                found.setdefault(attribute, set()).update({node.name} - SETUP)
        return {attribute: frozenset(names) for attribute, names in found.items()}

    @cached_property
    def asked(self) -> frozenset[str]:
        return frozenset(a for node in self.nodes.values() for a in node.asked)

    @cached_property
    def unsettled(self) -> frozenset[str]:
        """Attributes that are bound or changed in place once the object is set up."""
        return self.late.union(*(n.changed for n in self.nodes.values() if n.name not in SETUP))

    @cached_property
    def callers(self) -> Mapping[str, tuple[str, ...]]:
        """The other methods that call a method or pass it on, in the order of the file."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for node in self.nodes.values():
            for name in node.calls | node.refers:
                if name != node.name:
                    found[name].append(node.name)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def ties(self) -> Mapping[str, frozenset[str]]:
        """The other methods, set-up apart, that a method calls or is called by."""
        return {
            name: (node.calls | node.refers | set(self.callers[name])) - SETUP - {name}
            for name, node in self.nodes.items()
        }

    @cached_property
    def movable(self) -> tuple[str, ...]:
        """What a cluster may take: no set-up, no stub of an earlier slice."""
        return tuple(
            name
            for name, node in self.nodes.items()
            if name not in SETUP and not all(map(is_delegate, node.methods))
        )

    def lines(self, names: Collection[str]) -> int:
        return sum(self.nodes[name].lines for name in names)


def class_graph(tree: Tree, path: str, class_name: str | None = None) -> ClassGraph:
    """Graph of the named class of a file, or of its longest one; raises MG102, MG3xx."""
    data = tree.read(path)
    if data is None:
        raise MigrationError("MG303", f"{path} does not exist")
    source = read_source(path, data)
    shape = outline(source, class_name)
    root = import_root(tree, source)
    recipe = Recipe("plan", path, shape.name, "", "x.py", "X", (host_handle(shape.name),), import_root=root)
    definitions = [method for method in shape.methods if not is_overload(method.node)]
    moving, facts = movings(recipe, tree, source, shape, definitions, module_names(recipe, source))
    grouped: dict[str, list[Moving]] = {}
    for one in moving:
        grouped.setdefault(one.label, []).append(one)
    assigned = {attribute for found in facts.values() for attribute in found.attributes(WRITING)}
    direct = {name for name, group in grouped.items() if all(one.is_direct for one in group)} - assigned
    sections = {m.name: section.title for section in reversed(shape.sections) for m in section.methods}
    nodes = {
        name: _node(source, shape, group, sections[name], frozenset(grouped), direct)
        for name, group in grouped.items()
    }
    early = set(_class_level(shape)).union(*(nodes[name].written for name in SETUP & nodes.keys()))
    late = {a for node in nodes.values() if node.name not in SETUP for a in node.written}
    return ClassGraph(source, shape, root, nodes, frozenset(early), frozenset(late))


def _node(
    source: Source,
    shape: ClassOutline,
    group: list[Moving],
    section: str | None,
    names: frozenset[str],
    direct: Collection[str],
) -> Node:
    attributes: set[str] = set()
    mentioned: set[str] = set()
    written: set[str] = set()
    asked: set[str] = set()
    changed: set[str] = set()
    probed: set[str] = set()
    calls: set[str] = set()
    refers: set[str] = set()
    for one in group:
        for use in one.facts.uses:
            if use.attribute is None or hasattr(object, use.attribute):
                continue
            attribute = mangled(use.attribute, shape.name)
            if use.kind == "call" and use.attribute in direct:
                calls.add(use.attribute)
                continue
            mentioned.add(attribute)
            if use.kind in ("hasattr", "getattr", "setattr", "delattr"):
                probed.add(attribute)
            if use.attribute in names and use.kind in _MEMBER:
                refers.add(use.attribute)
            elif use.kind in _MEMBER:
                attributes.add(attribute)
            if use.kind in WRITING or use.kind == "delete":
                written.add(attribute)
        for attribute, method in _asked(source, one):
            if method in _CHANGING:
                changed.add(mangled(attribute, shape.name))
            elif method not in _OF_VALUES:
                asked.add(mangled(attribute, shape.name))
        changed |= {mangled(attribute, shape.name) for attribute in _assigned_into(source, one)}
    return Node(
        group[0].label,
        tuple(one.method for one in group),
        sum(one.method.block_end - one.method.block_start + 1 for one in group),
        section,
        frozenset(attributes),
        frozenset(mentioned),
        frozenset(written),
        frozenset(asked & attributes),
        frozenset(changed & attributes),
        frozenset(probed),
        frozenset(calls),
        frozenset(refers),
        any(use.attribute is None for one in group for use in one.facts.uses),
    )


def _text(source: Source, one: Moving) -> str:
    return b"".join(source.lines[one.method.first_line - 1 : one.method.last_line]).decode("utf-8", "replace")


def _asked(source: Source, one: Moving) -> list[tuple[str, str]]:
    """(attribute, method) of the calls `self.attribute.method(...)`."""
    if one.facts.self_name is None:
        return []
    return re.findall(rf"\b{one.facts.self_name}\.(\w+)\.(\w+)\(", _text(source, one))


def _assigned_into(source: Source, one: Moving) -> list[str]:
    """Attributes with an item or a part that is assigned or deleted: `self.rows[i] = x`, `self.args.n = 1`."""
    if one.facts.self_name is None:
        return []
    own, text = one.facts.self_name, _text(source, one)
    part = r"(?:\[[^\n]*?\]|\.\w+)+"
    found = re.findall(rf"\b{own}\.(\w+){part}\s*(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)", text)
    return [*found, *re.findall(rf"\bdel {own}\.(\w+){part}", text)]


def _class_level(shape: ClassOutline) -> Iterator[str]:
    """Names that statements of the class body bind."""
    for statement in shape.node.body:
        for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
            if isinstance(target, ast.Name):
                yield target.id
