"""Ranks that route alike: refused at start, switched together, summed up at the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadow.experiment import (
    Disagreement,
    FlagError,
    Flags,
    Gate,
    Isolated,
    Route,
    Skip,
    Verdict,
    agree,
    close_all,
    configure_all,
)
from shadow.experiment.flags import check_names, variables
from shadow.experiment.gate import _gates
from tests.shadow.experiment_support import (
    PREFIX,
    Worker,
    add,
    add_in_handler,
    add_wrongly,
    fresh_gates,
    gated,
    untraced,
)

__all__ = ["fresh_gates", "untraced"]


def together(*ranks: Callable[[Callable[[Any], list[Any]]], Any]) -> tuple[list[Any], int]:
    """What each rank, a thread, returned or raised; and how many collectives the first one took part in."""
    box: list[Any] = [None] * len(ranks)
    found: list[Any] = [None] * len(ranks)
    barrier = threading.Barrier(len(ranks))
    collectives = 0

    def run(rank: int) -> None:
        def gather(value: Any) -> list[Any]:
            nonlocal collectives
            collectives += rank == 0
            box[rank] = value
            barrier.wait(10)
            answers = list(box)
            barrier.wait(10)
            return answers

        try:
            found[rank] = ranks[rank](gather)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found, collectives


def gate_of(env: dict[str, str]) -> Gate:
    return gated(add, add_in_handler, env={f"{PREFIX}_{name}": value for name, value in env.items()})[1]


def agreed(*envs: dict[str, str]) -> tuple[list[Any], int]:
    """Each rank with a gate of its own environment."""
    gates = [gate_of(env) for env in envs]
    return together(*(lambda gather, gate=gate: agree(gather, [gate]) for gate in gates))


# at start


def test_ranks_that_agree_go_on_after_one_collective() -> None:
    assert agreed({"COMPARE": "1", "BUDGET": "0.5"}, {"COMPARE": "on", "BUDGET": "0.50"}) == ([None, None], 1)


@pytest.mark.parametrize(
    ("envs", "said"),
    [
        ([{"COMPARE": "1"}, {}], f"{PREFIX}_COMPARE differs between ranks: 1 on rank 0, 0 on rank 1"),
        ([{}, {"NATIVE": "1"}], f"{PREFIX}_NATIVE differs between ranks: 0 on rank 0, 1 on rank 1"),
        ([{"COMPARE": "0.5"}, {"COMPARE": "5%"}], f"{PREFIX}_COMPARE differs between ranks: 0.5 on rank 0, 0.05 on"),
        ([{"BUDGET": "0.5"}, {}], f"{PREFIX}_BUDGET differs between ranks: 0.5 on rank 0, unset on rank 1"),
        ([{"TIMEOUT": "3"}, {}], f"{PREFIX}_TIMEOUT differs between ranks: 3 on rank 0, 10 on rank 1"),
        ([{}, {"BRANCHES": "1"}], f"{PREFIX}_BRANCHES differs between ranks: 0 on rank 0, 1 on rank 1"),
        ([{}, {"NATIVE": "1"}, {}], f"{PREFIX}_NATIVE differs between ranks: 0 on ranks 0, 2, 1 on rank 1"),
    ],
)  # fmt: skip
def test_ranks_that_differ_are_refused_on_all_with_variable_rank_and_values(
    envs: list[dict[str, str]], said: str
) -> None:
    found, collectives = agreed(*envs)
    assert collectives == 1
    assert all(type(error) is Disagreement and str(error).startswith(said) for error in found), found
    assert len({str(error) for error in found}) == 1


def test_each_rank_may_report_elsewhere() -> None:
    assert agreed({"COMPARE": "1", "REPORT": "a"}, {"COMPARE": "1", "REPORT": "b"})[0] == [None, None]


def test_a_gate_that_one_rank_lacks_is_a_difference() -> None:
    one, other = gate_of({}), Gate("TEST_OTHER", Worker, {})
    found, _ = together(lambda gather: agree(gather, [one]), lambda gather: agree(gather, [one, other]))
    assert str(found[0]).startswith(
        "TEST_OTHER_NATIVE differs between ranks: of no gate on rank 0, 0 on rank 1"
    )
    assert str(found[0]) == str(found[1])


def test_what_one_rank_could_not_read_is_refused_on_all() -> None:
    wrong = FlagError("X_COMPARE='maybe' is neither on nor off")
    gate = gate_of({})
    found, _ = together(lambda gather: agree(gather, [gate]), lambda gather: agree(gather, [], refused=wrong))
    assert [str(error) for error in found] == [f"{wrong} (on rank 1 of 2)"] * 2
    found, _ = together(*[lambda gather: agree(gather, [], refused=wrong)] * 2)
    assert [str(error) for error in found] == [str(wrong)] * 2


def test_without_gates_nothing_is_gathered() -> None:
    def gather(value: Any) -> list[Any]:
        raise AssertionError("a collective")

    agree(gather, [])


# names of variables


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("X_KV_COMPAR", "X_KV_COMPAR is no variable of a gate; did you mean X_KV_COMPARE?"),
        ("X_KV_NATIV", "X_KV_NATIV is no variable of a gate; did you mean X_KV_NATIVE?"),
        ("X_KV_STATS_COMPAER", "X_KV_STATS_COMPAER is no variable of a gate; did you mean X_KV_STATS_COMPARE?"),
        ("X_KV_STATUS_NATIVE", "X_KV_STATUS_NATIVE is no variable of a gate; did you mean X_KV_STATS_NATIVE?"),
        ("X_KV_FOO", "X_KV_FOO is no variable of a gate; there are X_KV_BRANCHES, X_KV_BUDGET, X_KV_COMPARE, "),
    ],
)  # fmt: skip
def test_a_misspelt_variable_is_refused_with_what_was_meant(name: str, said: str) -> None:
    known = {*variables("X_KV", ["STATS"]), *variables("X_KV_LOADS", [])}
    with pytest.raises(FlagError) as caught:
        check_names({"X_KV", "X_KV_LOADS"}, known, {name: "1"})
    assert str(caught.value).startswith(said)


def test_variables_of_others_are_left_alone() -> None:
    env = {**dict.fromkeys(variables("X_KV", ["STATS"]), "1"), "X_KVS_FOO": "1", "X": "1", "X_KV_EMPTY": ""}
    check_names({"X_KV"}, set(variables("X_KV", ["STATS"])), env)


def test_a_misspelt_variable_of_the_process_is_found_when_the_ranks_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(f"{PREFIX}_COMPAR", "1")
    found, _ = agreed({})
    assert str(found[0]) == f"{PREFIX}_COMPAR is no variable of a gate; did you mean {PREFIX}_COMPARE?"


# at run time


def test_all_ranks_switch_together(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, gate = gated(add, add_wrongly, env={})
    worker.act(1)
    (done,), collectives = together(lambda gather: configure_all({PREFIX: Flags(native=True)}, gather))
    assert (done, collectives, worker.act(1)) == (None, 1, 3)
    assert gate.flags == Flags(native=True)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({PREFIX: Flags(compare=True)}, f"{PREFIX}_NATIVE differs between ranks: 1 on rank 0, 0 on rank 1; "),
        ({}, f"{PREFIX}_NATIVE differs between ranks: 1 on rank 0, 0 on rank 1"),
        ({"TEST_GATES": Flags()}, "there is no gate TEST_GATES; there are "),
        (
            {PREFIX: Flags(parts=(("A", Route()),))},
            f"{PREFIX} has no part A; it has none (on rank 1 of 2)",
        ),
    ],
)
def test_ranks_that_ask_for_different_things_switch_nothing(asked: dict[str, Flags], said: str) -> None:
    _, gate = gated(add, add_in_handler, env={})
    before = gate.flags
    found, collectives = together(
        lambda gather: configure_all({PREFIX: Flags(native=True)}, gather),
        lambda gather: configure_all(asked, gather),
    )
    assert [type(error) for error in found] == [type(found[0])] * 2 and isinstance(found[0], FlagError)
    assert str(found[0]).startswith(said) and str(found[0]) == str(found[1])
    assert gate.flags is before and not gate.on and collectives == 1


def test_native_and_compare_together_are_no_flags() -> None:
    with pytest.raises(FlagError, match="exclude each other"):
        Flags(native=True, compare=True)


# parts


class Parted:
    """Two methods, the second in a part of its own; the port adds ten more."""

    gate: Gate

    def _legacy_one(self) -> int:
        return 1

    def _legacy_two(self) -> int:
        return 2

    def one(self) -> int:
        return self.gate.run(self, "one") if self.gate.on else self._legacy_one()  # type: ignore[no-any-return]

    def two(self) -> int:
        return self.gate.run(self, "two") if self.gate.on else self._legacy_two()  # type: ignore[no-any-return]


class PartedHandler:
    @classmethod
    def for_worker(cls, worker: Any) -> PartedHandler:
        return cls()

    def one(self) -> int:
        return 11

    def two(self) -> int:
        return 12


def parted(**env: str) -> Parted:
    Parted.gate = Gate(
        "PARTED", PartedHandler, {"one": Isolated(), "two": Isolated()}, parts={"LAST": ["two"]}
    )
    Parted.gate.reload({f"PARTED_{name}": value for name, value in env.items()})
    return Parted()


@pytest.mark.parametrize(
    ("env", "results", "compared"),
    [
        ({}, (1, 2), ()),
        ({"NATIVE": "1"}, (11, 12), ()),
        ({"LAST_NATIVE": "1"}, (1, 12), ()),
        ({"NATIVE": "1", "LAST_NATIVE": "0"}, (11, 2), ()),
        ({"NATIVE": "1", "LAST_COMPARE": "1"}, (11, 2), ("two",)),
        ({"COMPARE": "1"}, (1, 2), ("one", "two")),
        ({"COMPARE": "1", "LAST_NATIVE": "1"}, (1, 12), ("one",)),
        ({"COMPARE": "1", "LAST_COMPARE": "0"}, (1, 2), ("one",)),
        ({"COMPARE": "1", "LAST_COMPARE": ""}, (1, 2), ("one", "two")),
        ({"LAST_COMPARE": "1"}, (1, 2), ("two",)),
    ],
)
def test_the_flags_of_a_part_decide_where_one_is_set(
    env: dict[str, str], results: tuple[int, int], compared: tuple[str, ...]
) -> None:
    worker = parted(**env)
    assert (worker.one(), worker.two()) == results
    assert tuple(name for name, count in Parted.gate.summary().methods if count.compared) == compared
    assert worker.gate.on == bool({"1"} & set(env.values()))


def test_a_part_has_a_share_of_its_own() -> None:
    worker = parted(COMPARE="1", LAST_COMPARE="0.000000001")
    for _ in range(20):
        assert (worker.one(), worker.two()) == (1, 2)
    counts = dict(Parted.gate.summary().methods)
    assert (counts["one"].compared, counts["two"].compared) == (20, 0)
    assert counts["two"].skipped == {"sampling": 20}


def test_the_flags_of_a_part_are_read_like_the_others() -> None:
    with pytest.raises(FlagError, match="PARTED_LAST_COMPARE='maybe' is neither on"):
        parted(LAST_COMPARE="maybe")
    with pytest.raises(FlagError, match="PARTED_LAST_NATIVE and PARTED_LAST_COMPARE are both set"):
        parted(LAST_NATIVE="1", LAST_COMPARE="1")


def test_parts_are_agreed_on_too() -> None:
    gates = [parted(LAST_COMPARE="1").gate, parted(COMPARE="1").gate]
    found, _ = together(*(lambda gather, gate=gate: agree(gather, [gate]) for gate in gates))
    assert str(found[0]).startswith(
        "PARTED_COMPARE differs between ranks: 0 on rank 0, 1 on rank 1; PARTED_LAST_NATIVE differs between ranks: "
        "0 on rank 0, unset on rank 1; PARTED_LAST_COMPARE differs between ranks: 1 on rank 0, unset on rank 1"
    )


def test_a_loop_that_looks_its_callable_up_gets_that_of_the_part() -> None:
    worker = parted(LAST_NATIVE="1")
    assert worker.gate.callable(worker, "one") == worker._legacy_one
    assert worker.gate.callable(worker, "two")() == 12


@pytest.mark.parametrize("parts", [{"A": ["three"]}, {"A": ["one"], "B": ["one"]}])
def test_a_part_of_methods_that_are_not_there_or_in_another_is_refused(parts: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match="has no gate, or another part has it"):
        Gate("PARTED", PartedHandler, {"one": Isolated()}, parts=parts)


# the end


def test_the_report_of_all_ranks_is_the_first_ones_unless_a_flag_says_where(tmp_path: Path) -> None:
    gates = [
        gate_of({"COMPARE": "1"}),
        gate_of({"COMPARE": "1"}),
        gate_of({"COMPARE": "1", "REPORT": "mine"}),
    ]
    together(
        *(
            lambda gather, gate=gate, at=at: agree(gather, [gate], report=str(tmp_path / f"sub/{at}"))
            for at, gate in enumerate(gates)
        )
    )
    assert [gate.summary().report for gate in gates] == [*[str(tmp_path / "sub/0")] * 2, "mine"]
    gates[0].configure(Flags(native=True))
    gates[0].configure(Flags(compare=True))
    assert gates[0].summary().report == str(tmp_path / "sub/0"), "switching back keeps the report"
    gates[0].close()
    assert (tmp_path / "sub/0").exists(), "its folder is made when there is something to write"


def test_one_line_and_one_record_at_the_end(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    worker, gate = gated(add, add_wrongly, env={f"{PREFIX}_COMPARE": "1", f"{PREFIX}_REPORT": str(report)})
    worker.act(1)
    worker.act(1)
    other = Gate("TEST_IDLE", Worker, {"act": Isolated(), "each": Skip("a generator")})
    other.reload({"TEST_IDLE_COMPARE": "1"})
    closing = close_all()
    assert closing is not None and closing.line() == (
        f"shadow: verdict 1 (diverged): {PREFIX}: 2 of 2 calls compared, 2 diverged; TEST_IDLE: 0 of 0 calls compared, "
        f"0 diverged, 1 of 1 methods never called; report: {report}"
    )
    assert (closing.calls, closing.compared, closing.diverged) == (2, 2, 2)
    assert [json.loads(line)["record"] for line in report.read_text().splitlines()].count("summary") == 1
    assert not gate.on and close_all() is None


def test_a_comparison_that_was_switched_off_before_the_end_is_told(tmp_path: Path) -> None:
    worker, gate = gated(add, add_in_handler)
    worker.act(1)
    gate.configure(Flags())
    closing = close_all()
    assert closing is not None and (closing.verdict, closing.compared) == (Verdict.EQUAL, 1)


def test_the_ranks_are_summed_up_and_the_worst_decides() -> None:
    def other_rank(value: Any) -> list[Any]:
        worker, gate = gated(add, add_wrongly)
        worker.act(1)
        return [value, ("other", [gate.summary()])]

    worker, _ = gated(add, add_in_handler)
    worker.act(1)
    worker.act(1)
    closing = close_all(other_rank)
    assert closing is not None
    assert closing.line().startswith(
        f"shadow: verdict 1 (diverged), 2 ranks: {PREFIX}: 3 of 3 calls compared, 1 div"
    )


def test_a_rank_that_had_nothing_to_do_is_no_gap() -> None:
    def other_rank(value: Any) -> list[Any]:
        return [value, ("other", [gate_of({"COMPARE": "1"}).summary()])]

    worker, _ = gated(add, add_in_handler)
    worker.act(1)
    closing = close_all(other_rank)
    assert closing is not None and closing.verdict is Verdict.EQUAL


def test_a_rank_that_is_gone_at_the_end_is_no_pass() -> None:
    def broken(value: Any) -> list[Any]:
        raise RuntimeError("Connection closed by peer")

    worker, _ = gated(add, add_in_handler)
    worker.act(1)
    closing = close_all(broken)
    assert closing is not None and closing.verdict is Verdict.HARNESS_FAILED
    assert closing.line().startswith(
        f"shadow: verdict 2 (harness failed): {PREFIX}: 1 of 1 calls compared, 0 diverged, 1"
    )


@pytest.mark.usefixtures("untraced")
def test_branches_that_any_rank_has_taken_are_taken() -> None:
    def sign(self: Any, of: int) -> int:
        return 1 if of > 0 else 0

    def rank(of: int) -> Any:
        worker, gate = gated(sign, sign, env={f"{PREFIX}_COMPARE": "1", f"{PREFIX}_BRANCHES": "1"})
        worker.act(of)
        return gate

    other = rank(-1)
    negative = other.summary()
    assert negative.branches == (1, 2)
    _gates.discard(other)  # of another process
    ours = rank(1)
    closing = close_all(lambda value: [value, ("other", [negative] * len(value[1]))])
    assert closing is not None and closing.summaries[0].branches == (2, 2)
    assert ours.summary().branches == (1, 2)
