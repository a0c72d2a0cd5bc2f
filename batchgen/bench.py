"""`batchgen bench`: decode throughput against Hugging Face `generate`, the step's floor, the share of attention.

All figures come from one run on one machine, so that their ratios mean something; runs of both sides alternate.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchgen.batchgen_worker import BatchGenWorker
    from batchgen.requests.types import TokenizedRequest, WorkerProgress


@dataclass(frozen=True)
class BenchResult:
    """Step times are milliseconds of one decode step of the whole batch; ``floor`` is the weight bytes over the
    measured streaming rate of a plain linear layer; ``hf`` is None without the comparison."""

    model: str
    batch: int
    prompt_tokens: int
    new_tokens: int
    threads: int
    step_ms: float
    tokens_per_second: float
    hf_step_ms: float | None
    hf_tokens_per_second: float | None
    speedup: float | None
    weight_mbytes: float
    stream_gbytes_per_second: float
    floor_step_ms: float
    step_over_floor: float
    attention_share: float


def run_bench(
    model: str,
    *,
    batch: int,
    prompt_tokens: int,
    new_tokens: int,
    repeat: int,
    threads: int | None,
    with_hf: bool,
    note: Callable[[str], None],
) -> BenchResult:
    """Measure; ``note`` is told what is going on.

    Raises:
        batchgen.models.ModelLoadError: the model cannot be loaded, or is none that Hugging Face could run beside.
        ImportError: transformers, which the comparison needs, is not installed.
    """
    import torch

    from batchgen.engine import EngineOptions, build_worker

    if threads is not None:
        torch.set_num_threads(threads)
    pages = batch * -(-(prompt_tokens + new_tokens) // 64) + batch
    note(f"loading {model}")
    worker = build_worker(
        EngineOptions(model=model, device="cpu", threads=threads, gpu_kv_pages=pages, max_batch_size=batch)
    )
    try:
        requests = _requests(worker, batch, prompt_tokens, new_tokens)
        reference = _HuggingFace(model, worker, requests) if with_hf else None
        note("warm-up")
        _engine_steps(worker, requests[:batch], limit=4)
        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(repeat):
            note(f"run {turn + 1} of {repeat}: engine")
            ours += _engine_steps(worker, requests)
            if reference is not None:
                note(f"run {turn + 1} of {repeat}: Hugging Face generate")
                theirs.append(reference.step_seconds(new_tokens))
        note("share of attention, streaming rate")
        share = _attention_share(worker, requests)
        weight_bytes = _linear_weight_bytes(worker)
        rate = _streaming_rate()
    finally:
        worker.close()
    step = statistics.median(ours)
    hf_step = statistics.median(theirs) if theirs else None
    floor = weight_bytes / rate
    return BenchResult(
        model=model,
        batch=batch,
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        threads=torch.get_num_threads(),
        step_ms=step * 1e3,
        tokens_per_second=batch / step,
        hf_step_ms=None if hf_step is None else hf_step * 1e3,
        hf_tokens_per_second=None if hf_step is None else batch / hf_step,
        speedup=None if hf_step is None else hf_step / step,
        weight_mbytes=weight_bytes / 1e6,
        stream_gbytes_per_second=rate / 1e9,
        floor_step_ms=floor * 1e3,
        step_over_floor=step / floor,
        attention_share=share,
    )


def _requests(
    worker: BatchGenWorker, batch: int, prompt_tokens: int, new_tokens: int
) -> list[TokenizedRequest]:
    """Prompts of ``prompt_tokens`` / 2 to ``prompt_tokens`` tokens; all rows generate equally many, so that every
    step of both sides has the full batch."""
    import torch

    from batchgen.requests.types import TokenizedRequest
    from batchgen.sampling import SamplingParams

    ids = torch.randint(
        10,
        worker.model_config.vocab_size - 10,
        (batch, prompt_tokens),
        generator=torch.Generator().manual_seed(0),
    )
    sampling = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
    lengths = [prompt_tokens - (prompt_tokens // 2) * i // max(batch - 1, 1) for i in range(batch)]
    return [
        TokenizedRequest(f"bench-{i}", tuple(row[:length]), sampling)
        for i, (row, length) in enumerate(zip(ids.tolist(), lengths, strict=True))
    ]


class _Enough(Exception):
    pass


def _engine_steps(
    worker: BatchGenWorker, requests: Sequence[TokenizedRequest], limit: int | None = None
) -> list[float]:
    """Seconds between the ends of consecutive decode steps, boundaries included."""
    ends: list[float] = []
    first = worker.counters["decode_steps"]

    def on_progress(_: WorkerProgress) -> None:
        if worker.counters["decode_steps"] > first:
            ends.append(time.perf_counter())
        if limit is not None and len(ends) > limit:
            raise _Enough

    with suppress(_Enough):
        worker.generate(requests, on_progress=on_progress)
    return [after - before for before, after in itertools.pairwise(ends)]


class _HuggingFace:
    """`generate` of transformers on the same weights and the same batch, left-padded."""

    def __init__(self, model: str, worker: BatchGenWorker, requests: Sequence[TokenizedRequest]) -> None:
        import torch

        try:
            from transformers import LlamaConfig, LlamaForCausalLM
        except ImportError as error:
            raise ImportError(
                "the comparison needs transformers: pip install transformers, or use --no-hf"
            ) from error
        from batchgen.models import ModelLoadError, state_dict_for_reference

        config, weights = state_dict_for_reference(model)
        if config.index_topk is not None or config.recurrent_layers:
            raise ModelLoadError(
                f"model {model!r} is no Llama: Hugging Face has nothing to compare it with; use --no-hf"
            )
        self._model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_hidden_layers,
                num_attention_heads=config.num_attention_heads,
                num_key_value_heads=config.num_key_value_heads,
                head_dim=config.head_dim,
                rms_norm_eps=config.rms_norm_eps,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
                max_position_embeddings=config.max_position_embeddings,
                tie_word_embeddings=config.tie_word_embeddings,
            )
        )
        self._model.load_state_dict(weights, strict=False)
        self._model.tie_weights()
        self._model.eval()
        prompts = [request.prompt_token_ids for request in requests]
        width = max(map(len, prompts))
        self._ids = torch.tensor([(0,) * (width - len(prompt)) + prompt for prompt in prompts])
        self._mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])

    def step_seconds(self, new_tokens: int) -> float:
        """Seconds per decode step: the run less a run that stops after the first token."""
        return (self._seconds(new_tokens) - self._seconds(1)) / (new_tokens - 1)

    def _seconds(self, new_tokens: int) -> float:
        import torch

        started = time.perf_counter()
        with torch.inference_mode():
            out = self._model.generate(
                input_ids=self._ids,
                attention_mask=self._mask,
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
            )
        if out.shape[1] != self._ids.shape[1] + new_tokens:
            raise RuntimeError(
                f"generate returned {out.shape[1] - self._ids.shape[1]} new tokens of {new_tokens}"
            )
        return time.perf_counter() - started


def _attention_share(worker: BatchGenWorker, requests: Sequence[TokenizedRequest]) -> float:
    """Fraction of decode time inside the attention backend (plan, append, decode), from a run of its own."""
    spent = [0.0]
    with _timed(worker.core_engine.attention_backend, ("plan_decode", "append", "decode"), spent):
        steps = _engine_steps(worker, requests)
    return spent[0] / sum(steps)


@contextmanager
def _timed(owner: Any, names: Sequence[str], spent: list[float]) -> Iterator[None]:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            result = function(*args, **kwargs)
            spent[0] += time.perf_counter() - started
            return result

        return timed

    for name in names:
        setattr(owner, name, wrap(getattr(owner, name)))
    try:
        yield
    finally:
        for name in names:
            delattr(owner, name)


def _linear_weight_bytes(worker: BatchGenWorker) -> int:
    """Bytes of all linear weights, which a decode step must read once."""
    from batchgen.models.linear import PackableLinear

    itemsize = worker.model.dtype.itemsize
    linears = [module for module in worker.model.modules() if isinstance(module, PackableLinear)]
    return sum(linear.out_features * linear.in_features for linear in linears) * itemsize


def _streaming_rate() -> float:
    """Bytes per second at which a plain fp32 linear layer of one row reads 128 MiB of weights; best of many."""
    import torch

    weight = torch.randn(1 << 15, 1 << 10)
    x = torch.randn(1, 1 << 10)
    best = float("inf")
    for _ in range(12):
        started = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        best = min(best, time.perf_counter() - started)
    return weight.numel() * weight.itemsize / best


def main(arguments: Sequence[str]) -> int:
    """Parse ``batchgen bench`` options, measure, print. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="batchgen bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: batchgen bench --model smollm2 --batch 16 --json",
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each side (default 3)")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--no-hf", action="store_true", help="leave out the Hugging Face comparison")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    try:
        options = parser.parse_args(list(arguments))
    except SystemExit as stop:
        return 0 if stop.code == 0 else 64
    if min(options.batch, options.prompt_tokens, options.repeat) < 1 or options.new_tokens < 3:
        print("batchgen bench: sizes must be at least 1 (--new-tokens 3)", file=sys.stderr)
        return 64
    # A random prompt makes the model repeat itself; the run must not end for that.
    os.environ["BATCHGEN_REP_DETECTION"] = "0"
    from batchgen.models import ModelLoadError

    try:
        result = run_bench(
            options.model,
            batch=options.batch,
            prompt_tokens=options.prompt_tokens,
            new_tokens=options.new_tokens,
            repeat=options.repeat,
            threads=options.threads,
            with_hf=not options.no_hf,
            note=lambda text: print(f"bench: {text}", file=sys.stderr),
        )
    except (ModelLoadError, ImportError) as error:
        print(f"batchgen bench: {error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(result)) if options.json else _report(result))
    return 0


def _report(r: BenchResult) -> str:
    lines = [
        f"{r.model}, batch {r.batch}, {r.prompt_tokens} prompt + {r.new_tokens} new tokens, {r.threads} threads, fp32",
        f"  engine            {r.step_ms:8.1f} ms/step  {r.tokens_per_second:8.1f} tokens/s",
    ]
    if r.speedup is not None:
        lines += [
            f"  HF generate       {r.hf_step_ms:8.1f} ms/step  {r.hf_tokens_per_second:8.1f} tokens/s",
            f"  engine / HF       {r.speedup:8.2f} x tokens/s",
        ]
    lines += [
        f"  floor             {r.floor_step_ms:8.1f} ms/step  ({r.weight_mbytes:.0f} MB of linear weights at "
        f"{r.stream_gbytes_per_second:.1f} GB/s); the step is {r.step_over_floor:.2f} x that",
        f"  paged attention   {100 * r.attention_share:8.1f} % of a step",
    ]
    return "\n".join(lines)
