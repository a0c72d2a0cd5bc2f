"""What the attention options may be; no torch.

Apart from `batchgen.engine`: a file that names the worker, and in quotes a module that it imports, looks to `migrate`
as if it replaced that module.
"""

from __future__ import annotations

TORCH, FLASHINFER = ATTENTIONS = ("torch", "flashinfer")
FAST, EXACT = ATTENTION_MODES = ("fast", "exact")
