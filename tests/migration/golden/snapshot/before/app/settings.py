"""Settings: written while they are made, never later."""

from dataclasses import dataclass


@dataclass
class KvSettings:
    page_size: int = 4


class Settings:
    def __init__(self, max_tokens, device="cpu"):
        self.max_tokens = max_tokens
        self.kv = KvSettings()
        self.device = device
