"""Classes of public packages: every definition is moved with a proof or refused with a code, and comes back."""

from __future__ import annotations

import pytest

from wild.moves import move_class, note, replay_runner, tried_classes

CLASSES = tried_classes()


def test_the_corpus_names_the_ten_classes() -> None:
    assert len(CLASSES) >= 10


@pytest.mark.wild
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("package", "file", "class_name"), CLASSES, ids=[name for _, _, name in CLASSES])
def test_every_definition_is_moved_with_a_proof_or_refused_with_a_code(
    package: str, file: str, class_name: str
) -> None:
    moved = move_class(package, file, class_name, every=5)
    note(moved)
    assert moved.score.tried == moved.score.movable + moved.score.count("refused")
    for one in moved.score.definitions:
        assert one.outcome != "refused" or all(refusal.code.startswith("MG0") for refusal in one.refusals), (
            one
        )
    assert moved.cut >= moved.score.movable > 0
    assert moved.verified
    assert moved.round_trip and not moved.broken_singles and moved.singles > 0


@pytest.mark.wild
@pytest.mark.timeout(1800)
def test_a_recipe_of_the_older_runner_replays_on_the_newer_one() -> None:
    replay = replay_runner()
    counts = {state: replay.count(state) for state in ("unchanged", "re-derived", "conflict")}  # type: ignore[arg-type]
    assert counts == {"unchanged": 26, "re-derived": 67, "conflict": 18}
    assert replay.outcome is not None and len(replay.outcome.methods) == 93  # type: ignore[union-attr]
