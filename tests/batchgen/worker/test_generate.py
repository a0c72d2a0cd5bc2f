"""What a caller of `generate` may count on."""

from __future__ import annotations

import pytest
import torch

from batchgen import batchgen_worker
from batchgen.engine import EngineOptionError
from batchgen.requests.types import TokenizedRequest
from batchgen.sampling import SamplingParams

from .conftest import MakeWorker, assert_nothing_held, by_id, random_requests, token_ids


def request(custom_id: str, prompt: str = "hello", **sampling: object) -> TokenizedRequest:
    return TokenizedRequest(
        custom_id, tuple(prompt.encode()), SamplingParams(**{"max_tokens": 12, **sampling})
    )  # type: ignore[arg-type]


def test_three_batches_on_one_live_worker_answer_like_three_fresh_workers(make_worker: MakeWorker) -> None:
    batches = [random_requests(n, seed=n, prompt=(1, 30), new=(1, 30)) for n in (12, 5, 20)]
    pools = {"gpu_kv_pages": 40, "host_kv_pages": 80}
    live = make_worker(row_exact=True, **pools)
    for batch in batches:
        fresh = make_worker(row_exact=True, **pools)
        assert token_ids(live.generate(batch)) == token_ids(fresh.generate(batch))
        assert_nothing_held(live)


def test_results_do_not_depend_on_the_batch_when_rows_are_exact(make_worker: MakeWorker) -> None:
    requests = random_requests(10, seed=3)
    worker = make_worker(row_exact=True)
    together = by_id(worker.generate(requests))
    for one in requests:
        assert worker.generate([one]) == [together[one.custom_id]]


def test_results_arrive_as_they_complete_and_progress_counts_them(make_worker: MakeWorker) -> None:
    requests = random_requests(9, seed=4, new=(4, 20))
    arrived, progress = [], []
    worker = make_worker()
    returned = worker.generate(requests, on_result=arrived.append, on_progress=progress.append)
    assert arrived == returned and len(returned) == 9
    completed = [p.completed for p in progress]
    assert completed == sorted(completed) and completed[-1] <= 9
    assert all(p.total == 9 for p in progress)
    assert progress[-1].generated_tokens == sum(len(r.token_ids) for r in returned)
    assert max(p.gpu_pages_used for p in progress) > 0
    assert progress[-1].prompt_tokens >= sum(len(r.prompt_token_ids) for r in requests)


def test_every_request_gets_exactly_what_it_asked_for_or_ends_early_with_a_reason(
    make_worker: MakeWorker,
) -> None:
    requests = random_requests(30, seed=5, new=(1, 40))
    wanted = {r.custom_id: r.sampling.max_tokens for r in requests}
    for result in make_worker(gpu_kv_pages=40).generate(requests):
        if result.finish_reason == "length":
            assert len(result.token_ids) == wanted[result.custom_id] and result.detail == "max_tokens"
        else:
            assert result.finish_reason == "stop" and len(result.token_ids) <= wanted[result.custom_id]


def test_a_token_of_eos_ends_the_sequence_even_at_prefill(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()
    eos = worker.tokenizer.eos_token_ids[0]
    select = worker._select_tokens

    def end_the_first_row(logits, sequences):
        tokens = select(logits, sequences)
        for row, seq in enumerate(sequences):
            if seq.custom_id == "at-prefill" or (seq.custom_id == "later" and seq.decoded_length == 3):
                tokens[row] = eos
        return tokens

    monkeypatch.setattr(worker, "_select_tokens", end_the_first_row)
    results = by_id(
        worker.generate([request("at-prefill"), request("later"), request("never", ignore_eos=True)])
    )
    assert results["at-prefill"].token_ids == (eos,) and results["at-prefill"].finish_reason == "stop"
    assert len(results["later"].token_ids) == 4 and results["later"].detail == "eos"
    assert len(results["never"].token_ids) == 12
    assert_nothing_held(worker)


def test_one_new_token_needs_no_decode(make_worker: MakeWorker) -> None:
    worker = make_worker()
    (result,) = worker.generate([request("one", max_tokens=1)])
    assert len(result.token_ids) == 1 and result.finish_reason == "length"
    assert "decode_steps" not in worker.stats()


def test_a_stop_string_ends_the_text_before_it(make_worker: MakeWorker) -> None:
    worker = make_worker()
    (free,) = worker.generate([request("free", max_tokens=24, ignore_eos=True)])
    readable = [i for i in range(4, 20) if worker.tokenizer.decode(list(free.token_ids[i : i + 2])).isascii()]
    stop = worker.tokenizer.decode(list(free.token_ids[readable[0] : readable[0] + 2]))
    assert stop in free.text
    (stopped,) = worker.generate([request("stopped", max_tokens=24, stop=(stop,), ignore_eos=True)])
    assert stopped.finish_reason == "stop" and stopped.detail == "stop_string"
    assert stopped.text == free.text[: free.text.index(stop)]
    assert len(stopped.token_ids) < 24


def test_a_sequence_that_repeats_one_token_is_stopped(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()
    monkeypatch.setattr(worker, "_select_tokens", lambda logits, rows: torch.full((len(rows),), 65))
    (result,) = worker.generate([request("loop", max_tokens=100)])
    assert result.detail == "repetition" and result.token_ids == (65,) * 32


def test_a_sequence_that_repeats_a_phrase_is_stopped_at_a_multiple_of_64(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()
    monkeypatch.setattr(
        worker, "_select_tokens", lambda logits, rows: torch.tensor([65 + s.decoded_length % 3 for s in rows])
    )
    (result,) = worker.generate([request("loop", max_tokens=200)])
    assert result.detail == "repetition" and len(result.token_ids) == 128


def test_repetition_may_be_allowed(make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batchgen_worker, "REP_DETECTION", False)
    worker = make_worker()
    monkeypatch.setattr(worker, "_select_tokens", lambda logits, rows: torch.full((len(rows),), 65))
    (result,) = worker.generate([request("loop", max_tokens=40)])
    assert len(result.token_ids) == 40 and result.detail == "max_tokens"


def test_sampling_depends_on_the_seed_and_not_on_evictions(make_worker: MakeWorker) -> None:
    def with_seed(seed: int) -> list[TokenizedRequest]:
        return [
            TokenizedRequest(
                r.custom_id,
                r.prompt_token_ids,
                SamplingParams(max_tokens=25, temperature=1.0, top_p=0.9, seed=seed),
            )
            for r in random_requests(12, seed=7)
        ]

    roomy = make_worker(row_exact=True)
    tight = make_worker(
        row_exact=True, gpu_kv_pages=40, host_kv_pages=45, host_kv_chunk_size=4, adaptive_host_kv_chunk=False
    )
    first = token_ids(roomy.generate(with_seed(1)))
    assert first == token_ids(tight.generate(with_seed(1)))
    assert tight.stats()["evictions"] > 0 and tight.stats()["re_prefills"] > 0
    assert first != token_ids(roomy.generate(with_seed(2)))


def test_logprobs_belong_to_the_tokens_also_across_evictions(make_worker: MakeWorker) -> None:
    requests = random_requests(12, seed=8, new=(20, 30), logprobs=True, top_logprobs=2)
    worker = make_worker(
        gpu_kv_pages=40, host_kv_pages=45, host_kv_chunk_size=4, adaptive_host_kv_chunk=False
    )
    for result in worker.generate(requests):
        assert result.logprobs is not None and len(result.logprobs) == len(result.token_ids)
        assert [lp.token_id for lp in result.logprobs] == list(result.token_ids)
        assert all(lp.logprob <= 0 and len(lp.top) == 2 for lp in result.logprobs)
    assert worker.stats()["evictions"] > 0


def test_a_request_that_no_pool_can_hold_is_answered_with_the_numbers(make_worker: MakeWorker) -> None:
    worker = make_worker(gpu_kv_pages=10, host_kv_pages=20)
    results = by_id(
        worker.generate(
            [
                request("gpu", max_tokens=60),
                request("fits"),
                request("context", max_tokens=10**6),
                TokenizedRequest("empty", (), SamplingParams()),
                request("zero", max_tokens=0),
            ]
        )
    )
    assert results["fits"].finish_reason == "length"
    assert "17 pages of 4 tokens; the GPU pool has 10" in (results["gpu"].detail or "")
    assert "exceeds the context" in (results["context"].detail or "")
    assert "no tokens" in (results["empty"].detail or "")
    assert "at least 1" in (results["zero"].detail or "")
    assert worker.stats()["rejected"] == 4


def test_a_request_that_fills_the_whole_pool_runs(make_worker: MakeWorker) -> None:
    worker = make_worker(gpu_kv_pages=10, host_kv_pages=10)
    results = worker.generate(
        [request(f"full{i}", prompt="x" * 20, max_tokens=20, ignore_eos=True) for i in range(3)]
    )
    assert [len(r.token_ids) for r in results] == [20, 20, 20]


def test_an_interrupted_batch_leaves_a_worker_that_runs_the_next_one(make_worker: MakeWorker) -> None:
    worker = make_worker()
    requests = random_requests(10, seed=9, new=(10, 30))

    def interrupt(progress: object) -> None:
        if worker.counters["decode_steps"] >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.generate(requests, on_progress=interrupt)
    assert_nothing_held(worker)
    expected = token_ids(make_worker().generate(requests))
    assert token_ids(worker.generate(requests)) == expected


def test_more_requests_than_pool_slots_are_admitted_as_slots_come_free(make_worker: MakeWorker) -> None:
    worker = make_worker(max_pool_size=4)
    results = worker.generate(random_requests(11, seed=10))
    assert len(results) == 11 and worker.stats()["admitted"] == 11
    assert_nothing_held(worker)


def test_the_same_custom_id_twice_is_refused(make_worker: MakeWorker) -> None:
    with pytest.raises(ValueError, match="'a' occurs twice"):
        make_worker().generate([request("a"), request("a")])


def test_a_closed_worker_says_so(make_worker: MakeWorker) -> None:
    worker = make_worker()
    worker.close()
    worker.close()
    with pytest.raises(RuntimeError, match="closed"):
        worker.generate([request("a")])


def test_hot_reload_keeps_the_live_state(make_worker: MakeWorker) -> None:
    worker = make_worker()
    before = token_ids(worker.generate(random_requests(4, seed=11)))
    old_class = type(worker)
    worker.hot_reload()
    assert type(worker) is not old_class and type(worker).PAGE_SIZE == 4
    assert token_ids(worker.generate(random_requests(4, seed=11))) == before


def test_an_index_pool_model_gives_the_same_with_and_without_pressure(make_worker: MakeWorker) -> None:
    requests = random_requests(14, seed=12, prompt=(10, 40), new=(10, 30))
    roomy = make_worker(model="tiny-dual", row_exact=True)
    tight = make_worker(
        model="tiny-dual",
        row_exact=True,
        gpu_kv_pages=40,
        host_kv_pages=50,
        host_kv_chunk_size=4,
        adaptive_host_kv_chunk=False,
    )
    assert token_ids(roomy.generate(requests)) == token_ids(tight.generate(requests))
    counters = tight.stats()
    assert all(counters[name] > 0 for name in ("evictions", "holds", "reloads", "async_loads")), counters
    assert_nothing_held(tight)


@pytest.mark.parametrize("model", ["tiny", "tiny-dual"])
def test_static_buffers_and_eager_decode_give_the_same(make_worker: MakeWorker, model: str) -> None:
    requests = random_requests(13, seed=13, new=(5, 30))
    static = make_worker(model=model, row_exact=True, gpu_kv_pages=60)
    eager = make_worker(model=model, row_exact=True, gpu_kv_pages=60, cuda_graphs=False)
    assert token_ids(static.generate(requests)) == token_ids(eager.generate(requests))
    assert static.stats()["graph_steps"] > 0 and "eager_steps" not in static.stats()
    assert eager.stats()["eager_steps"] > 0 and eager.stats()["graph_disabled"] > 0


def test_bfloat16_runs(make_worker: MakeWorker) -> None:
    results = make_worker(dtype="bfloat16").generate(random_requests(5, seed=14))
    assert all(r.token_ids for r in results)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"device": "foo"}, "device 'foo' is not known"),
        ({"dtype": "int4"}, "dtype 'int4' is not one of"),
        ({"page_size": 0}, "page_size must be at least 1"),
        ({"host_kv_watermark": 101}, "host_kv_watermark is a percentage"),
        ({"extension_gpu_page_buffer": 9}, "page buffers must satisfy"),
    ],
)
def test_an_option_that_cannot_work_is_named(
    make_worker: MakeWorker, option: dict[str, object], message: str
) -> None:
    with pytest.raises(EngineOptionError, match=message):
        make_worker(**option)


@pytest.mark.slow
def test_ten_thousand_requests_are_answered_once_each(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHGEN_DECODE_ASSERT", "0")
    worker = make_worker(page_size=16, gpu_kv_pages=512, host_kv_pages=4096, max_batch_size=64)
    requests = random_requests(10_000, seed=50, prompt=(2, 8), new=(1, 3))
    found = token_ids(worker.generate(requests))
    assert found.keys() == {r.custom_id for r in requests}
    assert all(1 <= len(found[r.custom_id]) <= r.sampling.max_tokens for r in requests)
    assert_nothing_held(worker)
