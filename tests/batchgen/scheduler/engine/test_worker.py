"""What a caller of the step policy's worker may count on."""

from __future__ import annotations

import pytest

from batchgen.requests.types import GenerationResult
from tests.batchgen.scheduler.engine.conftest import (
    SCARCE,
    MakeWorker,
    assert_nothing_held,
    by_id,
    random_requests,
    request,
)


def test_results_arrive_as_they_complete_and_progress_counts_them(make_worker: MakeWorker) -> None:
    requests = random_requests(12)
    arrived: list[GenerationResult] = []
    progress = []
    returned = make_worker().generate(requests, on_result=arrived.append, on_progress=progress.append)
    assert arrived == returned and len(by_id(returned)) == 12
    assert [p.completed for p in progress] == sorted(p.completed for p in progress)
    last = progress[-1]
    assert (last.completed, last.total, last.running, last.queued, last.on_hold) == (12, 12, 0, 0, 0)
    assert last.generated_tokens == sum(len(r.token_ids) for r in returned)
    assert last.prompt_tokens == sum(len(r.prompt_token_ids) for r in requests)
    assert max(p.gpu_pages_used for p in progress) > 0 and last.gpu_pages_used == 0


def test_progress_shows_parked_requests_on_hold(make_worker: MakeWorker) -> None:
    on_hold = []
    make_worker(gpu_kv_pages=SCARCE).generate(
        random_requests(30), on_progress=lambda p: on_hold.append(p.on_hold)
    )
    assert max(on_hold) > 0


def test_a_live_worker_answers_a_second_batch_as_a_fresh_one(make_worker: MakeWorker) -> None:
    live = make_worker(row_exact=True, gpu_kv_pages=SCARCE)
    live.generate(random_requests(10, seed=1))
    again = by_id(live.generate(random_requests(10, seed=2)))
    assert again == by_id(make_worker(row_exact=True).generate(random_requests(10, seed=2)))
    assert_nothing_held(live)


@pytest.mark.parametrize(
    ("pages", "max_tokens", "words"),
    [
        (8, 24, "needs 9 pages of 4 tokens, with the one it grows into; the pool has 8"),
        (8, 20, None),
        (4000, 12288, "exceeds the context of 12288 tokens"),
    ],
)
def test_what_can_never_finish_is_refused_at_once_and_all_else_finishes(
    make_worker: MakeWorker, pages: int, max_tokens: int, words: str | None
) -> None:
    worker = make_worker(gpu_kv_pages=pages)
    (result,) = worker.generate([request("a", "12345678", max_tokens=max_tokens, ignore_eos=True)])
    if words is None:
        assert result.finish_reason == "length" and len(result.token_ids) == max_tokens
    else:
        assert result.finish_reason == "error" and words in (result.detail or "")
        assert result.token_ids == ()


def test_a_row_that_drops_tokens_ends_where_the_pool_does(make_worker: MakeWorker) -> None:
    """`</think>` outside thinking is dropped, and uses no budget."""
    worker = make_worker(gpu_kv_pages=8)
    (result,) = worker.generate([request("a", "12345678", max_tokens=20, logit_bias=((259, 100.0),))])
    assert (result.finish_reason, result.detail, result.token_ids) == ("length", "kv_pool", ())
    assert_nothing_held(worker)


def test_the_largest_requests_that_fit_finish_together_in_a_pool_for_one(make_worker: MakeWorker) -> None:
    worker = make_worker(gpu_kv_pages=16)
    requests = [
        request(str(i), "1234", max_tokens=56, ignore_eos=True, seed=i, temperature=1.0) for i in range(6)
    ]
    results = worker.generate(requests)
    assert {r.finish_reason for r in results} <= {"length", "tool_calls"} and len(by_id(results)) == 6
    assert_nothing_held(worker)


def test_a_stop_string_ends_a_row_before_it(make_worker: MakeWorker) -> None:
    worker = make_worker(row_exact=True)
    (free,) = worker.generate([request("a", "hello", max_tokens=40, ignore_eos=True)])
    stop = free.text[8:10]
    (stopped,) = worker.generate([request("b", "hello", max_tokens=40, ignore_eos=True, stop=(stop,))])
    assert (stopped.finish_reason, stopped.detail) == ("stop", "stop_string")
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.token_ids == free.token_ids[: len(stopped.token_ids)]
    assert len(stopped.token_ids) < len(free.token_ids)


def test_logprobs_stand_beside_their_tokens_in_a_scarce_pool(make_worker: MakeWorker) -> None:
    requests = [
        request(
            f"r{i}",
            "prompt " * (i % 4 + 1),
            max_tokens=30,
            logprobs=True,
            top_logprobs=2,
            seed=i,
            temperature=0.7,
        )
        for i in range(16)
    ]
    ample = by_id(make_worker(row_exact=True).generate(requests))
    scarce = by_id(make_worker(row_exact=True, gpu_kv_pages=SCARCE).generate(requests))
    assert ample == scarce
    for result in ample.values():
        assert result.logprobs is not None
        assert [entry.token_id for entry in result.logprobs] == list(result.token_ids)


def test_a_cancelled_request_ends_where_it_is(make_worker: MakeWorker) -> None:
    worker = make_worker(gpu_kv_pages=SCARCE)
    requests = [request(f"r{i}", "x" * 20, max_tokens=60, ignore_eos=True, seed=i) for i in range(12)]
    seen: set[str] = set()

    def cancel_all_kinds(progress: object) -> None:
        loop = worker.loop
        for kind, rows in (
            ("waiting", [arrival.a for arrival in loop.waiting]),
            ("active", loop.active),
            ("parked", [parked.a for parked in loop.preempted]),
        ):
            if kind not in seen and rows:
                seen.add(kind)
                assert worker.cancel(rows[-1].request_id)

    results = by_id(worker.generate(requests, on_progress=cancel_all_kinds))
    assert seen == {"waiting", "active", "parked"} and len(results) == 12
    assert sum(r.finish_reason == "cancelled" for r in results.values()) == 3
    assert not worker.cancel("r0")
    assert_nothing_held(worker)


def test_a_request_past_its_deadline_ends_with_what_it_has(make_worker: MakeWorker) -> None:
    results = by_id(
        make_worker().generate(
            [
                request("late", max_tokens=1500, ignore_eos=True, temperature=1.0, timeout=0.05),
                request("free", max_tokens=5),
            ]
        )
    )
    assert results["free"].finish_reason in ("length", "stop")
    late = results["late"]
    assert (late.finish_reason, late.detail) == ("timeout", "timeout") and len(late.token_ids) < 1500


def test_an_interrupted_batch_holds_nothing_afterwards(make_worker: MakeWorker) -> None:
    worker = make_worker(gpu_kv_pages=SCARCE)

    def interrupt(result: GenerationResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.generate(random_requests(30), on_result=interrupt)
    assert_nothing_held(worker)
    assert len(worker.generate(random_requests(3))) == 3


def test_an_id_that_occurs_twice_is_refused(make_worker: MakeWorker) -> None:
    with pytest.raises(ValueError, match="occurs twice"):
        make_worker().generate([request("a", max_tokens=99_999), request("a", max_tokens=99_999)])
