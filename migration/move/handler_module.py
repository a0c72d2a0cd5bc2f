"""Text of the handler module: imports in order, Protocols, the handler class with the moved methods."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence

from migration.move.base import base_import
from migration.move.capabilities import CHECKABLE
from migration.move.moving import mangled
from migration.move.names import ImportName, ImportPlan
from migration.move.protocols import Handle, protocol_text
from migration.move.request import REQUEST_IMPORTS, request_lines, slot_line
from migration.patterns import links
from migration.recipe import HandleSpec, Recipe

_WIDTH = 110
#: A module that has this one needs no other.
TYPING_CALLABLE = ImportName("typing", "Callable")


def import_lines(
    imports: Iterable[ImportName], is_first_party: Callable[[str], bool], indent: str = ""
) -> str:
    """Import statements sorted as isort does it: by origin, plain ones first, then by module."""
    groups: dict[int, list[ImportName]] = {}
    for item in imports:
        top = item.module.partition(".")[0]
        origin = 0 if top in sys.stdlib_module_names else 2 if is_first_party(top) else 1
        groups.setdefault(origin, []).append(item)
    return "\n".join(_group(groups[origin], indent) for origin in sorted(groups))


def _group(items: list[ImportName], indent: str) -> str:
    lines: list[str] = []
    for item in sorted(
        (item for item in items if item.name is None), key=lambda item: item.module.casefold()
    ):
        lines.append(f"import {item.module}" + (f" as {item.alias}" if item.alias else ""))
    named = [item for item in items if item.name is not None]
    for module in sorted({item.module for item in named}, key=str.casefold):
        plain = sorted(
            {item.name or "" for item in named if item.module == module and not item.alias}, key=_name_key
        )
        if plain:
            line = f"from {module} import {', '.join(plain)}"
            if len(indent + line) > _WIDTH:
                inner = "".join(f"{indent}    {name},\n" for name in plain)
                line = f"from {module} import (\n{inner}{indent})"
            lines.append(line)
        aliased = sorted(item for item in named if item.module == module and item.alias)
        lines += [f"from {module} import {item.name} as {item.alias}" for item in aliased]
    return "".join(f"{indent}{line}\n" for line in lines)


def _name_key(name: str) -> tuple[int, str]:
    return (0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2), name.casefold()


def handler_text(
    recipe: Recipe,
    handles: tuple[Handle, ...],
    plan: ImportPlan,
    type_imports: Iterable[ImportName],
    methods: Iterable[str],
    is_first_party: Callable[[str], bool],
    fields: Sequence[tuple[str, str]] = (),
    capabilities: Sequence[str] = (),
) -> str:
    """The whole module with LF line ends; `methods` come indented by four spaces.

    `fields` are (path from the worker, type) of the snapshot; `capabilities` the Protocols of methods that
    only some workers have.
    """
    protocols = [text for handle in handles if (text := protocol_text(handle))]
    methods = list(methods)
    runtime = set(plan.runtime) | {ImportName("typing", "Any")}
    if capabilities:
        protocols += capabilities
        runtime.add(CHECKABLE)
    if protocols:
        runtime.add(ImportName("typing", "Protocol"))
    if fields:
        runtime.add(ImportName("dataclasses", "dataclass"))
        protocols.append(_snapshot_text(recipe, fields))
    if recipe.request is not None:
        runtime.update(REQUEST_IMPORTS)
    if recipe.base:
        runtime.add(base_import(recipe))
    given = {item for handle in handles if handle.literal for item in handle.literal.imports}
    typing = (set(plan.typing) | set(type_imports) | given) - runtime
    if any(is_read(handle.spec) for handle in handles) and TYPING_CALLABLE not in runtime | typing:
        runtime.add(ImportName("collections.abc", "Callable"))
        typing -= runtime
    if plan.typing_aliases:
        typing.add(ImportName(recipe.source_module, recipe.source_class))
    # What typing itself offers is there at run time anyway, and costs no import guard.
    runtime |= {item for item in typing if item.module in ("typing", "collections.abc")}
    typing -= runtime
    if typing:
        runtime.add(ImportName("typing", "TYPE_CHECKING"))
    head = [
        f'"""{recipe.what} of {recipe.source_class}: cut out of {recipe.source_file}."""',
        "",
        "from __future__ import annotations",
        "",
        import_lines(runtime, is_first_party),
    ]
    if typing:
        aliases = [f"    {name} = {recipe.source_class}.{name}\n" for name in sorted(plan.typing_aliases)]
        head += ["if TYPE_CHECKING:", import_lines(typing, is_first_party, "    ") + "".join(aliases)]
    if plan.logger_lines:
        head += [*(line for _, line in sorted(plan.logger_lines.items())), ""]
    parts = ["\n".join(head), *protocols, _class_text(recipe, handles, methods, [path for path, _ in fields])]
    return "\n\n".join(part.strip("\n") + "\n" for part in parts)


def _snapshot_text(recipe: Recipe, fields: Sequence[tuple[str, str]]) -> str:
    """The frozen dataclass of what is read once."""
    assert recipe.snapshot is not None
    doc = f"Configuration of a {recipe.source_class}, as it is when a handler is made."
    lines = "".join(f"    {path.rpartition('.')[2]}: {text}\n" for path, text in fields)
    return f'@dataclass(frozen=True)\nclass {recipe.snapshot.class_name}:\n    """{doc}"""\n\n{lines}'


def _class_text(
    recipe: Recipe, handles: tuple[Handle, ...], methods: list[str], fields: Sequence[str]
) -> str:
    kept = [handle for handle in handles if not handle.spec.request]
    parameters = [f"{handle.spec.name}: {_parameter_type(handle)}" for handle in kept]
    stores = "".join(f"        self.{stored(handle.spec)} = {handle.spec.name}\n" for handle in kept)
    arguments = [f"{handle.spec.name}={made_of(recipe, handle.spec)}" for handle in kept]
    if fields and (snapshot := recipe.snapshot) is not None:
        parameters.append(f"{snapshot.name}: {snapshot.class_name}")
        stores += f"        self._{snapshot.name} = {snapshot.name}\n"
        values = "".join(f"                {path.rpartition('.')[2]}=worker.{path},\n" for path in fields)
        arguments.append(f"{snapshot.name}={snapshot.class_name}(\n{values}            )")
    names = ["self", *(["*"] if parameters else []), *parameters]
    signature = f"    def __init__({', '.join(names)}) -> None:\n"
    if len(signature) > _WIDTH:
        each = "".join(f"        {parameter},\n" for parameter in parameters)
        signature = f"    def __init__(\n        self,\n        *,\n{each}    ) -> None:\n"
    bound = ".on(worker)" if recipe.request is not None else ""
    made = f"        return cls({', '.join(arguments)}){bound}\n"
    if len(made) > _WIDTH or fields:
        views = "".join(f"            {argument},\n" for argument in arguments)
        made = f"        return cls(\n{views}        ){bound}\n"
    plain = all(handle.spec.is_worker for handle in handles) and not fields
    factory = (
        "    @classmethod\n"
        f"    def for_worker(cls, worker: Any) -> {recipe.handler_class if recipe.request is None else 'Self'}:\n"
        + (_ALL_WORKER if plain else _SOME_WORKER)
        + adapter_imports(handles)
        + made
    )
    where = "the worker" if recipe.request is None else "what `on` binds"
    doc = (
        f'    """{recipe.what} of {recipe.source_class}, without state of its own.\n\n'
        f"    Attributes stay on {where} and are looked up there at every use, so that rebinding,\n"
        '    deletion and hasattr() mean what they meant.\n    """\n'
    )
    slot = [slot_line(recipe.request)] if recipe.request is not None else []
    getters = request_lines(recipe.handler_class, recipe.request) if recipe.request is not None else []
    getters += [_getter(handle.spec) for handle in handles if is_read(handle.spec)]
    above = f"({base_import(recipe).bound})" if recipe.base else ""
    return f"class {recipe.handler_class}{above}:\n" + "\n".join(
        [doc, *slot, *([signature + stores] if parameters else []), factory, *getters, *methods]
    )


_ALL_WORKER = (
    '        """Every handle is the worker itself, seen as the part that the methods may touch."""\n'
)
_SOME_WORKER = (
    '        """Handles on a worker: the worker itself, or what the recipe says is read from it."""\n'
)


def is_read(spec: HandleSpec) -> bool:
    """True for a handle that is looked up again at each use; an adapter looks up for itself."""
    return bool(spec.expressions) and not spec.adapter


def stored(spec: HandleSpec) -> str:
    """Attribute of the handler in which the constructor keeps what it is given."""
    return f"_read_{spec.name}" if is_read(spec) else f"_{spec.name}"


def made_of(recipe: Recipe, spec: HandleSpec) -> str:
    """What `for_worker` gives to the constructor for a handle."""
    links_ = (
        [mangled(link, recipe.source_class) for link in links(spec.expressions[0])]
        if spec.expressions
        else []
    )
    place = ".".join(["worker", *links_])
    if spec.adapter:
        return f"{spec.adapter.partition(':')[2]}(lambda: {place})"
    return f"lambda: {place}" if spec.expressions else place


def _parameter_type(handle: Handle) -> str:
    protocol = handle.spec.protocol
    return f"Callable[[], {protocol}]" if is_read(handle.spec) else protocol


def adapter_imports(handles: tuple[Handle, ...]) -> str:
    """Imports of the adapters inside `for_worker`: the handler module itself needs none of them."""
    adapters = {handle.spec.adapter.partition(":") for handle in handles if handle.spec.adapter}
    items = {ImportName(module, name.partition(".")[0]) for module, _, name in adapters}
    lines = import_lines(items, lambda _: True, "        ")
    return lines + ("\n" if lines else "")


def _getter(spec: HandleSpec) -> str:
    return (
        f"    @property\n    def _{spec.name}(self) -> {spec.protocol}:\n"
        f'        """Read at each use, for another object may have taken its place."""\n'
        f"        return self._read_{spec.name}()\n"
    )
