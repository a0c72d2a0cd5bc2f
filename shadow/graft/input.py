"""The inputs of a decode forward that can be grafted."""

from __future__ import annotations

from enum import StrEnum


class Input(StrEnum):
    """What a decode forward reads, causes of the others first."""

    PAGE_TABLE = "page table"
    LENGTHS = "kv_len and positions"
    TOKENS = "input tokens"
    KEYS = "K of the live positions"
    VALUES = "V of the live positions"
    KEYS_AND_VALUES = "K and V of the live positions"
