"""How much of a handler module comes from the codemod."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import SequenceMatcher

from migration.code.source import Source
from migration.code.structure import outline
from migration.code.tree import Tree
from migration.proofs.record import ProofFile


@dataclass(frozen=True)
class Share:
    """Lines of the module `file`: of moved methods, of what was generated around them, and `added` since by
    somebody; `by_hand` are the files of the slice that were written by hand, with their lines."""

    file: str
    moved: int
    generated: int
    added: int
    by_hand: tuple[tuple[str, int], ...]

    @property
    def percent(self) -> float:
        """Rounded down, so that a single added line is seen."""
        own = self.moved + self.generated
        return math.floor(1000 * own / max(own + self.added, 1)) / 10


def share(tree: Tree, proof: ProofFile, written: bytes) -> Share:
    """`written` is the handler module as the codemod writes it now; the tree has it as it is."""
    recipe = proof.recipe
    there = tree.read(recipe.target_file) or b""
    ours, lines = written.splitlines(), there.splitlines()
    methods = outline(Source(recipe.target_file, written), recipe.handler_class).methods
    moved = {
        number
        for method in methods
        if method.name in proof.names
        for number in range(method.block_start, method.block_end + 1)
    }
    kept = list(range(1, len(ours) + 1))
    if there != written:
        blocks = SequenceMatcher(None, ours, lines, autojunk=False).get_matching_blocks()
        kept = [block.a + offset + 1 for block in blocks for offset in range(block.size)]
    own = sum(number in moved for number in kept)
    by_hand = tuple((path, len((tree.read(path) or b"").splitlines())) for path in recipe.human)
    return Share(recipe.target_file, own, len(kept) - own, len(lines) - len(kept), by_hand)
