"""Whether the kernel can run, and if not, why."""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from importlib.util import find_spec

import torch

logger = logging.getLogger(__name__)


class Unavailable(RuntimeError):
    """The kernel cannot run here; the text says why and what to do."""


def unavailable(device: torch.device) -> str | None:
    """One line: why the kernel cannot compare tensors there; None where it can."""
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the tensors are on {device.type}: the kernel needs a CUDA device, or TRITON_INTERPRET=1"
    if find_spec("triton") is None:
        return "triton is not installed: pip install the version that this torch asks for"
    return None


def said_once(reason: str) -> None:
    """Logs why something slower is used, each reason once."""
    _said(reason)


@lru_cache(maxsize=64)
def _said(reason: str) -> None:
    logger.warning("tensors are compared by operations of torch, not by the kernel: %s", reason)
