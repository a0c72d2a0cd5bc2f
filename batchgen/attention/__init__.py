"""Attention over paged KV: backend protocol, torch reference, and the wrapper that holds the bound state."""

from batchgen.attention.prefix import PrefillPrefix
from batchgen.attention.protocol import AttentionBackend, DecodePlan, IndexInputs, PlansAhead
from batchgen.attention.torch_paged import TorchPagedAttention
from batchgen.attention.wrapper import Attn_Wrapper, AttnWrapperBase

__all__ = [
    "AttentionBackend",
    "AttnWrapperBase",
    "Attn_Wrapper",
    "DecodePlan",
    "IndexInputs",
    "PlansAhead",
    "PrefillPrefix",
    "TorchPagedAttention",
]
