"""Long methods of public classes: each is divided with a proof, fits, or is refused with a code."""

from __future__ import annotations

import pytest

from wild.moves import tried_classes
from wild.splits import Tried, note, table, try_class

CLASSES = tried_classes()


@pytest.mark.wild
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("package", "file", "class_name"), CLASSES, ids=[name for _, _, name in CLASSES])
def test_every_long_method_is_split_with_a_proof_or_refused_with_a_code(
    package: str, file: str, class_name: str
) -> None:
    tried = try_class(package, file, class_name)
    note(class_name, tried)
    assert [one for one in tried if one.outcome == "broken"] == []
    for one in tried:
        assert one.outcome != "split" or one.pieces > 1, one
        # What the proof finds (MG2..) would be a fault of the cutting, not of the method.
        assert one.outcome != "refused" or all(code.startswith("MG5") for code in one.codes), one


def test_the_table_counts_methods_pieces_and_codes() -> None:
    tried = [Tried("a", 200, "split", 3), Tried("b", 130, "fits"), Tried("c", 300, "refused", 0, ("MG508",))]
    rows = [{"class": "C", "tried": [one.__dict__ for one in tried]}, {"class": "D", "tried": []}]
    assert table(rows).splitlines()[2:] == [
        "| C | 3 | 1 (3) | 1 | 1: MG508 x1 | 0 |",
        "| all | 3 | 1 (3) | 1 | 1 | 0 |",
    ]
