"""What a rule is: a code, a name, the words of its line in a checklist, and a look at the subject."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from migration.check.model import Seen
from migration.check.subject import Subject
from migration.recipe_checklist import PHASES, Item

Look = Callable[[Subject, Item], Seen]


@dataclass(frozen=True)
class Rule:
    """`always`: it applies to every slice. Another one applies where the recipe has an item for it, and has
    then to find something to look at."""

    code: str
    name: str
    title: str
    look: Look
    always: bool = False
    phases: tuple[str, ...] = PHASES
