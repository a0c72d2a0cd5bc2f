"""What must hold of every run, as functions of a scenario; AssertionError where it does not."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.batchgen.scheduler.world import RowSeen, Scenario, StepSeen, World

Property = Callable[[Scenario], None]


@contextmanager
def world_of(scenario: Scenario) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        world = World(scenario, Path(folder))
        try:
            yield world
        finally:
            world.close()


def run(scenario: Scenario) -> World:
    with world_of(scenario) as world:
        return world.run()


def parked_in(step: StepSeen) -> list[str]:
    return [name for name in step.parked if name not in step.parked_before]


def p1_sorted_and_stable_before_every_launch(scenario: Scenario) -> None:
    for step in run(scenario).steps:
        if not step.before:
            continue
        expected = step.sorted if len(step.before) > 1 else list(step.before)
        victims = [victim.request_id for victim in step.trace.victims]
        for number, launch in enumerate(step.launches):
            left = [name for name in expected if name not in victims[:number]]
            assert launch.slots == tuple(step.before[name].slot for name in left)
            assert launch.command.tokens == tuple(step.before[name].last_token for name in left)
            assert step.trace.launches[number].ids == tuple(left)


def p2_no_request_is_lost_or_doubled(scenario: Scenario) -> None:
    world = run(scenario)
    for step in world.steps:
        everywhere = step.after + parked_in(step) + list(step.trace.drained)
        assert sorted(everywhere) == sorted(step.before)
        assert len(set(step.parked)) == len(step.parked)
    assert sorted(row.request_id for row in world.ended) == sorted(world.rows)
    assert len(world.rows) == len(scenario.requests)
    for name in world.rows:
        assert len(world.inbox(name).finals) == 1, f"{name}: {world.inbox(name).finals}"
        assert world.inbox(name).events[-1] == world.inbox(name).finals[0]


def p3_each_exhausted_launch_parks_one_row(scenario: Scenario) -> None:
    for step in run(scenario).steps:
        exhausted = sum(launch.result == "kv_exhausted" for launch in step.trace.launches)
        terminal = step.trace.outcome == "failed" and step.trace.launches[-1].result == "kv_exhausted"
        assert exhausted == len(step.trace.victims) + terminal
        assert sorted(victim.request_id for victim in step.trace.victims) == sorted(parked_in(step))
        assert len(step.launches) <= len(step.before)


def p4_a_failed_step_tells_each_row_once_and_no_victim(scenario: Scenario) -> None:
    world = run(scenario)
    for step in world.steps:
        if step.trace.outcome != "failed":
            continue
        assert step.after == []
        assert step.freed == len(step.before), "each row is freed once, drained or parked"
        for name in step.trace.drained:
            assert [event.kind for event in world.inbox(name).finals] == ["error"]
    for name, row in world.rows.items():
        assert sum(event.kind == "error" for event in world.inbox(name).events) == (row.error is not None)


def p5_a_parked_row_hears_nothing_and_holds_nothing(scenario: Scenario) -> None:
    with world_of(scenario) as world:
        for step in world.stepping():
            assert {seq.slot_idx for seq in world.device.live} == {row.seq.slot_idx for row in world.active}
            assert step.after == [name for name in step.sorted if name in step.after]
            for name in parked_in(step):
                row = world.rows[name]
                assert (RowSeen.of(row).events, tuple(row.output_tokens)) == (
                    step.before[name].events,
                    step.before[name].outputs,
                )
            if step.trace.outcome == "stepped":
                assert step.trace.tokens == tuple(row.last_token for row in world.active)


def p6_the_lent_buffer_comes_back_or_an_empty_one_is_there(scenario: Scenario) -> None:
    for step in run(scenario).steps:
        if step.trace.outcome == "stepped" or not step.before:
            assert step.buffer_back
            assert step.trace.buffer == ("returned" if step.before else "untouched")
        else:
            assert not step.buffer_back and step.buffer_bytes == 0 and step.trace.buffer == "dropped"


def p7_blocks_and_entries_are_conserved(scenario: Scenario) -> None:
    with world_of(scenario) as world:
        for _ in world.stepping():
            world.device.check()
            assert world.device.live_sequences == len(world.active)
            if world.spill is not None:
                assert world.spill.usage().entries == len(world.swapped)
        assert world.device.held_blocks == 0
        assert world.device.free_blocks + world.device.cached_blocks == scenario.total
        if world.spill is not None and world.directory is not None:
            assert world.spill.usage().bytes == 0 and list(world.directory.glob("*/*")) == []


def fitting(scenario: Scenario) -> tuple[Scenario, World]:
    """A pool that has a block more than the largest request needs, and the run in which nobody waited. Tokens that are
    dropped use no budget, so what a request needs is known only when it has run."""
    ample = run(dataclasses.replace(scenario, total=1000, spill_budget=0, max_batch=16))
    assert not any(step.trace.victims for step in ample.steps)
    most = max((row.blocks for step in ample.steps for row in step.before.values()), default=0)
    # `most` is what a row held before a step, which may have taken one for it.
    return dataclasses.replace(scenario, total=max(scenario.total, most + 2)), ample


def p8_a_tight_pool_gives_the_streams_of_an_ample_one(scenario: Scenario) -> None:
    tight, ample = fitting(scenario)
    tiny = run(tight)
    assert tiny.streams == ample.streams
    assert tiny.events == ample.events


def p9_a_resume_samples_nothing_and_changes_nothing(scenario: Scenario) -> None:
    for resume in run(scenario).resumes:
        parked, back = resume.parked, resume.back
        assert (back.last_token, back.remaining, back.outputs, back.events) == (
            parked.last_token,
            parked.remaining,
            parked.outputs,
            parked.events,
        )
        assert back.immune_until == len(parked.outputs) + scenario.immunity
        assert resume.back_tokens == resume.tokens


def p10_every_request_that_fits_with_a_block_more_finishes(scenario: Scenario) -> None:
    world = run(fitting(scenario)[0])
    assert {name: row.error for name, row in world.rows.items() if row.error} == {}


def p11_a_failed_launch_advances_nothing_and_reserves_once(scenario: Scenario) -> None:
    with world_of(scenario) as world:
        for step in world.stepping():
            lengths = {row.slot: row.seq_len for row in step.before.values()}
            for launch in step.launches:
                assert launch.seq_lens == tuple(lengths[slot] for slot in launch.slots)
            for row in world.active:
                before = step.before[row.request_id].seq_len
                assert row.seq.seq_len == before + 1
                assert row.num_blocks == before // scenario.block_size + 1


def p12_the_debug_line_is_exact(scenario: Scenario) -> None:
    logger = logging.getLogger("batchgen.scheduler.diagnosis")
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        steps = [step for step in run(scenario).steps if len(step.before) > 1]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    assert len(lines) == len(steps)
    for line, step in zip(lines, steps, strict=True):
        rows = [step.before[name] for name in step.sorted]
        assert line == f"CONC_DIAG n={len(rows)}: " + " ".join(
            f"[{i}: slot={row.slot} seq_len={row.seq_len} bt={row.first_block}/{row.blocks} "
            f"last={row.last_token} out_n={len(row.outputs)}]"
            for i, row in enumerate(rows)
        )


def victims_have_least_progress_and_no_immunity(scenario: Scenario) -> None:
    for step in run(scenario).steps:
        left = dict(step.before)
        for victim in step.trace.victims:
            mature = {n: r for n, r in left.items() if len(r.outputs) >= r.immune_until}
            among = mature or left
            assert victim.request_id == min(among, key=lambda n: (len(among[n].outputs), among[n].slot))
            del left[victim.request_id]


def a_spill_is_a_requeue_only_where_it_failed(scenario: Scenario) -> None:
    for step in run(scenario).steps:
        for victim in step.trace.victims:
            assert (victim.route == "spill") == (scenario.spill_budget > 0 and victim.spill_error is None)


#: Those that hold with failures injected anywhere, too.
ALWAYS: tuple[Property, ...] = (
    p1_sorted_and_stable_before_every_launch,
    p2_no_request_is_lost_or_doubled,
    p3_each_exhausted_launch_parks_one_row,
    p4_a_failed_step_tells_each_row_once_and_no_victim,
    p5_a_parked_row_hears_nothing_and_holds_nothing,
    p6_the_lent_buffer_comes_back_or_an_empty_one_is_there,
    p7_blocks_and_entries_are_conserved,
    p9_a_resume_samples_nothing_and_changes_nothing,
    p11_a_failed_launch_advances_nothing_and_reserves_once,
    p12_the_debug_line_is_exact,
    victims_have_least_progress_and_no_immunity,
    a_spill_is_a_requeue_only_where_it_failed,
)
UNDISTURBED: tuple[Property, ...] = (
    p8_a_tight_pool_gives_the_streams_of_an_ample_one,
    p10_every_request_that_fits_with_a_block_more_finishes,
)
