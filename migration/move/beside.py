"""What a slice adds beside its handler module: adapters, and strict fakes of its Protocols."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from migration.code.module_file import module_file
from migration.code.source import Source
from migration.code.tree import Tree
from migration.errors import MigrationError, Refusal
from migration.ledger.change import FileChange
from migration.move.adapters import Adapter, AdapterRefused, AdapterSpec, MemberMap, adapter_text
from migration.move.fakes import fake_text
from migration.move.protocol_classes import ProtocolModule
from migration.move.wrapped_class import WrappedClass
from migration.recipe import AdapterEntry, Recipe


def beside(
    recipe: Recipe, tree: Tree, handler: bytes, eol: bytes, is_first_party: Callable[[str], bool]
) -> tuple[list[FileChange], list[Refusal]]:
    """The files, and every reason against one; raises MG303, MG527, MG529 as the generators do."""
    own = ProtocolModule(Source(recipe.target_file, handler), recipe.target_module)
    changes: list[FileChange] = []
    refusals: list[Refusal] = []
    texts: list[tuple[str, str]] = []
    for entry in recipe.adapters:
        made = _adapter(recipe, entry, tree, own, is_first_party)
        if isinstance(made, Adapter):
            texts.append((entry.file, made.text))
        else:
            refusals += made.refusals
    if recipe.fakes:
        texts.append((recipe.fakes, fake_text(own, is_first_party)))
    for path, text in texts:
        if tree.read(path) is not None:
            refusals.append(Refusal("MG103", path, 0, "the file exists"))
        changes.append(FileChange(path, None, text.replace("\n", eol.decode()).encode()))
    return changes, refusals


def _adapter(
    recipe: Recipe,
    entry: AdapterEntry,
    tree: Tree,
    own: ProtocolModule,
    is_first_party: Callable[[str], bool],
) -> Adapter | AdapterRefused:
    handle = next(handle for handle in recipe.handles if handle.name == entry.handle)
    protocols = own
    if handle.protocol_from:
        protocols = ProtocolModule(*_module(recipe, tree, handle.protocol_from.partition(":")[0]))
    module, _, name = entry.wraps.partition(":")
    wrapped = WrappedClass(*_module(recipe, tree, module), name)
    members = tuple(MemberMap(member, to, dict(parameters)) for member, to, parameters in entry.members)
    spec = AdapterSpec(handle.protocol, entry.name, name, members)
    return adapter_text(spec, protocols, wrapped, is_first_party)


def _module(recipe: Recipe, tree: Tree, module: str) -> tuple[Source, str]:
    if (file := module_file(tree, module, recipe.import_root)) is not None:
        return Source(*file), module
    path = posixpath.join(recipe.import_root, module.replace(".", "/"))
    raise MigrationError("MG303", f"{path}.py does not exist (slice {recipe.name})")
