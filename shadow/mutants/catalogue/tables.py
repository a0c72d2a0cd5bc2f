"""Page tables: rows that name other pages than their sequences own, or in another order than the batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shadow.mutants.patch import around, index, module
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind


def _page_table(plant: Plant) -> Any:
    return module(plant, "kv.page_table").PageTable


@mutant(
    "moved-row-keeps-old-columns",
    Fault.STRUCTURAL,
    Where(Kind.INVARIANT, "trailing-columns", step=24, sequence="e"),
)
@contextmanager
def moved_row_keeps_old_columns(plant: Plant) -> Iterator[None]:
    """vllm-tt-plugin#103: a row that moves up takes along only the pages in use; behind them are those of the row
    that was there, and the sequence grows into them."""

    decoded: list[Any] = []  # the table of the last step before

    def write(original: Any, table: Any, slots: list[int], host: Any) -> None:
        original(table, slots, host)
        number, used = index(plant, "e"), 3
        if plant.step() < 24:
            decoded[:] = [table.device_table.clone()]
        elif plant.step() == 24 and number in slots and len(slots) == 3:
            row = slots.index(number)
            table.device_table[row, used:] = decoded[0][row, used:]
            plant.fired()

    with around(_page_table(plant), "write", write):
        yield


@mutant(
    "shrunk-row-keeps-tail", Fault.STRUCTURAL, Where(Kind.INVARIANT, "trailing-columns", step=8, sequence="e")
)
@contextmanager
def shrunk_row_keeps_tail(plant: Plant) -> Iterator[None]:
    """rtp-llm#1321 (columns): a row that becomes shorter keeps the pages of its predecessor behind its own; nobody
    reads them, yet."""

    def write(original: Any, table: Any, slots: list[int], host: Any) -> None:
        before = table.device_table.clone()
        original(table, slots, host)
        if plant.step() == 8 and len(slots) == 3:
            tail = (table.device_table == -1) & (before >= 0)
            tail[len(slots) :] = False
            table.device_table[tail] = before[tail]
            plant.fired()

    with around(_page_table(plant), "write", write):
        yield


@mutant(
    "rows-in-another-order",
    Fault.STRUCTURAL,
    Where(Kind.INVARIANT, "length-identity", step=28, sequence="e"),
)
@contextmanager
def rows_in_another_order(plant: Plant) -> Iterator[None]:
    """B-31: the rows of the page table are in another order than the batch, while the slots say otherwise."""

    def write(original: Any, table: Any, slots: list[int], host: Any) -> None:
        if plant.step() == 28 and len(slots) == 3:
            host = host.flip(0)
            plant.fired()
        original(table, slots, host)

    with around(_page_table(plant), "write", write):
        yield


@mutant("graph-table-not-refreshed", Fault.STRUCTURAL, Where(Kind.PLAN, "*", step=28))
@contextmanager
def graph_table_not_refreshed(plant: Plant) -> Iterator[None]:
    """sglang#37975, B-03: the page table that graphs read is left as it was after the batch has changed."""

    def fill(original: Any, table: Any) -> Any:
        if plant.step() == 28:
            plant.fired()
            return table.ensure_graph_table()
        return original(table)

    with around(_page_table(plant), "fill_graph_table", fill):
        yield


@mutant(
    "table-not-rebuilt-after-extension",
    Fault.STRUCTURAL,
    Where(Kind.EFFECTS, "calls*", step=16, sequence="b"),
)
@contextmanager
def table_not_rebuilt_after_extension(plant: Plant) -> Iterator[None]:
    """B-03: pages were added at a boundary and the table was not built again: the rows stay one page short."""

    def rebuild(original: Any, batch: Any) -> Any:
        if plant.step() == 16:
            plant.fired()
            return None
        return original(batch)

    with around(plant.worker, "_rebuild_page_table_for_batch", rebuild):
        yield


@mutant("two-rows-swapped", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=28), cuda_graphs=False)
@contextmanager
def two_rows_swapped(plant: Plant) -> Iterator[None]:
    """nano-vllm#258: after a join the batch is sorted by uuid, the table by global index: two rows change places."""

    def rebuild(original: Any, manager: Any, ids: Any) -> None:
        if plant.step() == 28 and len(ids) == 3:
            ids = [ids[1], ids[0], *ids[2:]]
            plant.fired()
        original(manager, ids)

    def verify(original: Any, state: Any, batch: Any) -> None:
        if plant.step() != 28:
            original(state, batch)

    with (
        around(module(plant, "kv.gpu").GPUPagedKVCacheManager, "rebuild_page_table", rebuild),
        around(plant.worker, "_decode_verify_page_table", verify),
    ):
        yield
