"""The rules of `migrate check`, in the order in which their lines are shown."""

from __future__ import annotations

from typing import Final

from migration.check.rules import (
    adapters,
    bodies,
    calls,
    gates,
    handles,
    imports,
    once,
    ranks,
    references,
    signatures,
    source,
    state,
    ties,
    ways,
)
from migration.check.rules.base import Rule

RULES: Final[tuple[Rule, ...]] = (
    *references.RULES,
    *state.RULES,
    *imports.RULES,
    *calls.RULES,
    *ways.RULES,
    *once.RULES,
    *handles.RULES,
    *adapters.RULES,
    *ties.RULES,
    *gates.RULES,
    *signatures.RULES,
    *bodies.RULES,
    *ranks.RULES,
    *source.RULES,
)
