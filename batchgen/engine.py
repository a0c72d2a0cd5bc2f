"""From user options to a worker that is ready to generate."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchgen.attention_names import ATTENTION_MODES, ATTENTIONS, EXACT, FAST, TORCH
from batchgen.gates import agreed_gates

if TYPE_CHECKING:
    import torch

    from batchgen.attention import AttentionBackend
    from batchgen.attention.flashinfer.kernels import Kernels
    from batchgen.batchgen_worker import BatchGenWorker
    from batchgen.config import ModelConfig
    from batchgen.models import LoadedModel, PagedCausalLM
    from batchgen.scheduler.engine.worker import StepWorker

DTYPES = ("float32", "bfloat16", "float16")
GPU_POOL_BYTES_ON_CPU = 2 << 30
GPU_POOL_FRACTION = 0.5
POLICIES = ("boundary", "step")
DEFAULT_WATERMARK = 70
#: A spill folder holds this many pools of KV, unless it is told otherwise.
SPILLED_POOLS = 4


class EngineOptionError(ValueError):
    """An option, or a combination of options, that cannot work; the message names the option and the way out."""


@dataclass(frozen=True)
class EngineOptions:
    """What a user may choose. None means: derive it from the model and the machine.

    Pool sizes are pages of ``page_size`` tokens per rank (GPU) and per node (host). ``row_exact`` computes row by
    row on one thread, so that results do not depend on what else is in the batch; it is slow and meant for tests.
    ``gate_report`` is where gates that compare write what they find, unless a variable of theirs says where.

    ``attention`` "flashinfer" needs a CUDA device, and the package or a folder of prebuilt kernels
    (``flashinfer_objects``); with ``attention_mode`` "exact" a row's attention does not depend on the batch.

    Of the step policy alone: ``spill_dir``, where rows that make room are kept, and the bytes they may take there;
    ``adaptive_sampling``, whether the temperature follows what a row writes.
    """

    model: str = "smollm2"
    dtype: str = "float32"
    device: str = "auto"
    page_size: int = 64
    gpu_kv_pages: int | None = None
    host_kv_pages: int | None = None
    max_batch_size: int = 64
    max_tokens_default: int = 128
    row_exact: bool = False
    threads: int | None = None
    seed: int = 0
    cuda_graphs: bool = True
    host_kv_watermark: int = DEFAULT_WATERMARK
    policy: str = "boundary"
    initial_gpu_page_buffer: int = 32
    extension_gpu_page_buffer: int = 4
    decision_frequency_pages: int = 2
    host_kv_chunk_size: int = 8192
    adaptive_host_kv_chunk: bool = True
    host_kv_eviction_watermark: int = 10
    prefill_micro_batch_tokens: int = 2048
    max_pool_size: int = 10240
    cuda_graph_max_seqlen: int = 0
    cuda_graph_num_buckets: int = 16
    gate_report: str | None = None
    spill_dir: str | None = None
    spill_bytes: int | None = None
    adaptive_sampling: bool = False
    attention: str = TORCH
    attention_mode: str = FAST
    flashinfer_objects: str | None = None


def build_worker(options: EngineOptions) -> BatchGenWorker:
    """Load the model and build this rank's worker; joins (or makes) the process group.

    Reads RANK, WORLD_SIZE and LOCAL_RANK as torchrun sets them and NUM_GPUS_PER_NODE.

    Raises:
        EngineOptionError: an option cannot work.
        batchgen.gates.GateFlagError: on every rank, where a variable of a gate is wrong on one.
        batchgen.models.ModelLoadError: the model cannot be loaded.
    """
    check_options(options)
    rank = int(os.environ.get("RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    device = _resolve_device(options.device, int(os.environ.get("LOCAL_RANK", "0")))
    kernels = _kernels(options, device)
    _set_threads(options)
    _join_process_group(rank, world_size)
    with agreed_gates(options.gate_report):
        from batchgen.batchgen_worker import NUM_GPUS_PER_NODE, BatchGenWorker, BatchGenWorkerArgs
    local_rank = rank % NUM_GPUS_PER_NODE
    loaded = _load(options, device)
    attention = _attention(options, kernels, loaded)
    if loaded.model.state_shape() is not None and world_size > NUM_GPUS_PER_NODE:
        # The worker moves KV between nodes, and nothing else of a sequence's memory.
        raise EngineOptionError(
            f"model {options.model!r} has recurrent states, which cannot move between nodes: "
            f"{world_size} ranks do not fit one node of {NUM_GPUS_PER_NODE}; set NUM_GPUS_PER_NODE to at least "
            f"{world_size}, or start one run for each node"
        )
    gpu_pages, host_pages = _pool_sizes(options, loaded.model, loaded.config, device)
    args = BatchGenWorkerArgs(
        model=options.model,
        seed=options.seed,
        row_exact=options.row_exact,
        page_size=options.page_size,
        gpu_kv_pages=gpu_pages,
        host_kv_pages=host_pages,
        max_batch_size=options.max_batch_size,
        max_pool_size=options.max_pool_size,
        prefill_micro_batch_tokens=options.prefill_micro_batch_tokens,
        initial_gpu_page_buffer=options.initial_gpu_page_buffer,
        extension_gpu_page_buffer=options.extension_gpu_page_buffer,
        decision_frequency_pages=options.decision_frequency_pages,
        host_kv_chunk_size=options.host_kv_chunk_size,
        adaptive_host_kv_chunk=options.adaptive_host_kv_chunk,
        host_kv_watermark=options.host_kv_watermark,
        host_kv_eviction_watermark=options.host_kv_eviction_watermark,
        disable_cuda_graphs=not options.cuda_graphs,
        cuda_graph_max_seqlen=options.cuda_graph_max_seqlen,
        cuda_graph_num_buckets=options.cuda_graph_num_buckets,
    )
    worker = BatchGenWorker(
        args,
        loaded,
        device=device,
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        session=_session_name(world_size),
    )
    if attention is not None:
        worker.core_engine.use_attention(attention)
    return worker


def build_step_worker(options: EngineOptions) -> StepWorker:
    """Load the model and build what runs ``--policy step``: one process, one device.

    Raises EngineOptionError or batchgen.models.ModelLoadError, as ``build_worker`` does.
    """
    check_options(options)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        raise EngineOptionError(
            f"policy 'step' runs in one process, not in {world_size}; start it without torchrun, or use "
            "--policy boundary"
        )
    from batchgen.scheduler.engine.device import ModelDevice
    from batchgen.scheduler.engine.loop import Knobs
    from batchgen.scheduler.engine.worker import StepWorker
    from batchgen.scheduler.errors import SpillError
    from batchgen.scheduler.file_spill import FileSpill

    device = _resolve_device(options.device, 0)
    kernels = _kernels(options, device)
    _set_threads(options)
    loaded = _load(options, device)
    pages, _ = _pool_sizes(options, loaded.model, loaded.config, device)
    spill = None
    if options.spill_dir is not None:
        budget = options.spill_bytes or SPILLED_POOLS * pages * _page_bytes(options, loaded.model)
        try:
            spill = FileSpill(Path(options.spill_dir), budget)
        except SpillError as error:
            raise EngineOptionError(f"--spill-dir: {error}") from error
    return StepWorker(
        loaded,
        ModelDevice(
            loaded,
            num_blocks=pages,
            block_size=options.page_size,
            max_batch=options.max_batch_size,
            cuda_graphs=options.cuda_graphs,
            attention=_attention(options, kernels, loaded),
        ),
        max_batch=options.max_batch_size,
        knobs=Knobs(options.prefill_micro_batch_tokens, options.adaptive_sampling),
        spill=spill,
    )


def check_options(options: EngineOptions) -> None:
    """Raises EngineOptionError for what can be known without loading anything."""
    if options.dtype not in DTYPES:
        raise EngineOptionError(f"dtype {options.dtype!r} is not one of {', '.join(DTYPES)}")
    _check_policy(options)
    _check_attention(options)
    positive = (
        "page_size",
        "max_batch_size",
        "max_tokens_default",
        "max_pool_size",
        "prefill_micro_batch_tokens",
        "cuda_graph_num_buckets",
    )
    for name in positive:
        if getattr(options, name) < 1:
            raise EngineOptionError(f"{name} must be at least 1, got {getattr(options, name)}")
    for name in ("gpu_kv_pages", "host_kv_pages", "threads", "spill_bytes"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise EngineOptionError(f"{name} must be at least 1, got {value}")
    for name in ("host_kv_watermark", "host_kv_eviction_watermark"):
        if not 0 <= getattr(options, name) <= 100:
            raise EngineOptionError(f"{name} is a percentage, got {getattr(options, name)}")
    buffers = (
        options.initial_gpu_page_buffer,
        options.extension_gpu_page_buffer,
        options.decision_frequency_pages,
    )
    if not buffers[0] >= buffers[1] >= buffers[2] >= 1:
        raise EngineOptionError(
            "page buffers must satisfy initial >= extension >= decision frequency >= 1, got "
            f"{buffers[0]}, {buffers[1]}, {buffers[2]}"
        )


def _check_policy(options: EngineOptions) -> None:
    """Each policy has options that mean nothing to the other: ignored, they would promise what does not happen."""
    if options.policy not in POLICIES:
        raise EngineOptionError(
            f"policy {options.policy!r} is not known; use {' or '.join(map(repr, POLICIES))}"
        )
    if options.policy == "boundary":
        own = {
            "--spill-dir": options.spill_dir is not None,
            "--spill-bytes": options.spill_bytes is not None,
            "--adaptive-sampling": options.adaptive_sampling,
        }
        advice = "add --policy step, or leave it out"
    else:
        own = {
            "--host-pages": options.host_kv_pages is not None,
            "--host-kv-watermark": options.host_kv_watermark != DEFAULT_WATERMARK,
        }
        advice = "it has no host pool: leave it out, and see --spill-dir"
    for name, given in own.items():
        if given:
            raise EngineOptionError(f"{name} means nothing to policy {options.policy!r}; {advice}")
    if options.spill_bytes is not None and options.spill_dir is None:
        raise EngineOptionError("--spill-bytes needs --spill-dir, the folder that they are the bytes of")


def _check_attention(options: EngineOptions) -> None:
    for name, known in (("attention", ATTENTIONS), ("attention_mode", ATTENTION_MODES)):
        if getattr(options, name) not in known:
            raise EngineOptionError(f"{name} {getattr(options, name)!r} is not one of {', '.join(known)}")
    if options.attention == TORCH:
        if options.attention_mode != FAST or options.flashinfer_objects is not None:
            name = "--attention-mode" if options.attention_mode != FAST else "--flashinfer-objects"
            raise EngineOptionError(
                f"{name} means nothing to attention {TORCH!r}; add --attention flashinfer, or leave it out"
            )
    elif options.dtype == "float32":
        raise EngineOptionError("attention 'flashinfer' does not compute in float32; add --dtype bfloat16")
    elif options.row_exact:
        raise EngineOptionError(
            "attention 'flashinfer' does not compute row by row as --row-exact asks; use --attention torch, or "
            "--attention-mode exact, which keeps rows apart but does not make prefill and decode alike"
        )


def _kernels(options: EngineOptions, device: torch.device) -> Kernels | None:
    """None for attention in torch. Before the model is loaded: what is missing is missing with any."""
    if options.attention == TORCH:
        return None
    from batchgen.attention.choice import KernelsUnavailableError, find_kernels

    objects = options.flashinfer_objects
    try:
        return find_kernels(device, None if objects is None else Path(objects))
    except KernelsUnavailableError as error:
        raise EngineOptionError(str(error)) from error


def _attention(
    options: EngineOptions, kernels: Kernels | None, loaded: LoadedModel
) -> AttentionBackend | None:
    if kernels is None:
        return None
    from batchgen.attention.flashinfer_paged import FlashInferPagedAttention

    lack = kernels.lacks(loaded.config.head_dim, loaded.model.dtype)
    if lack is not None:
        raise EngineOptionError(f"model {options.model!r}: {lack}, or use --attention torch")
    return FlashInferPagedAttention(kernels, exact=options.attention_mode == EXACT)


def _load(options: EngineOptions, device: torch.device) -> LoadedModel:
    import torch

    from batchgen.models import load_model

    return load_model(
        options.model,
        dtype=getattr(torch, options.dtype),
        device=device,
        row_exact=options.row_exact,
        seed=options.seed,
    )


def _resolve_device(name: str, local_rank: int) -> torch.device:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EngineOptionError(f"device {name!r} is not known; use auto, cpu or cuda") from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise EngineOptionError(
                "device 'cuda' was asked for, but torch sees no CUDA device; use --device cpu"
            )
        if device.index is None:
            device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    return device


def _set_threads(options: EngineOptions) -> None:
    """One thread for ``row_exact``: how a reduction is split over threads must not reach the result."""
    import torch

    threads = 1 if options.row_exact else options.threads
    if threads is not None:
        torch.set_num_threads(threads)


def _join_process_group(rank: int, world_size: int) -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        if dist.get_world_size() != world_size:
            raise EngineOptionError(
                f"a process group of {dist.get_world_size()} ranks exists, the environment says {world_size}"
            )
        return
    if world_size == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=world_size)


def _pool_sizes(
    options: EngineOptions, model: PagedCausalLM, config: ModelConfig, device: torch.device
) -> tuple[int, int]:
    """Pages of the GPU pool and of the host pool.

    By default the GPU pool takes what a full batch of longest contexts needs, up to half of the free GPU memory
    (2 GiB on a CPU), and the host pool twice the GPU pool.
    """
    import torch

    budget = GPU_POOL_BYTES_ON_CPU
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        budget = int(free * GPU_POOL_FRACTION)
    context_pages = -(-config.max_position_embeddings // options.page_size)
    fitting = max(1, min(options.max_batch_size * context_pages, budget // _page_bytes(options, model)))
    gpu_pages = options.gpu_kv_pages or fitting
    return gpu_pages, options.host_kv_pages or 2 * gpu_pages


def _page_bytes(options: EngineOptions, model: PagedCausalLM) -> int:
    """Bytes of one page in all pools."""
    import torch

    layers, heads, dim = model.kv_pool_shape()
    per_token = 2 * layers * heads * dim
    aux = model.aux_pool_shape()
    if aux is not None:
        per_token += aux[0] * aux[1] * aux[2]
    return per_token * options.page_size * int(getattr(torch, options.dtype).itemsize)


def _session_name(world_size: int) -> str:
    """A name for the shared host pools that all ranks of this job, and no other job, have."""
    job = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    port = os.environ.get("MASTER_PORT", "0")
    return f"{socket.gethostname()}-{job}-{port}" if world_size > 1 else f"pid{os.getpid()}"
