"""Decode steps on persistent padded buffers: eligibility -> prepare_replay_inputs -> replay ->
stage_post_graph_kv."""

from batchgen.cuda_graph.adapter import (
    BatchState,
    CudaGraphAdapter,
    GraphCaptureError,
    GraphEligibility,
    GraphMode,
    GraphSegment,
)
from batchgen.cuda_graph.buckets import generate_bucket_sizes
from batchgen.cuda_graph.buffers import GraphPointerError, StaticBuffers, TensorIdentity
from batchgen.cuda_graph.compare import CompareFailure, CompareReport, RowDifference, compare_outputs
from batchgen.cuda_graph.context import CaptureContext
from batchgen.cuda_graph.flags import DecodeGraphFlags, warn_on_removed
from batchgen.cuda_graph.glm5 import Glm5CudaGraphAdapter, allocate_kv_staging
from batchgen.cuda_graph.manager import StaticGraphManager

__all__ = [
    "BatchState",
    "CaptureContext",
    "CompareFailure",
    "CompareReport",
    "CudaGraphAdapter",
    "DecodeGraphFlags",
    "Glm5CudaGraphAdapter",
    "GraphCaptureError",
    "GraphEligibility",
    "GraphMode",
    "GraphPointerError",
    "GraphSegment",
    "RowDifference",
    "StaticBuffers",
    "StaticGraphManager",
    "TensorIdentity",
    "allocate_kv_staging",
    "compare_outputs",
    "generate_bucket_sizes",
    "warn_on_removed",
]
