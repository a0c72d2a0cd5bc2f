"""A small slice whose handler comes with backends in its constructor and the rest by request."""

from __future__ import annotations

from migration.recipe import parse_recipe

from .support import worker_source

TEXT = '''
schema = 1
name = "cache"

[source]
file = "app/worker.py"
class = "Worker"
section = "Cache"

[target]
file = "app/parts/cache.py"
class = "CacheManager"
siblings = "handler"

[[handles]]
name = "gpu_kv"
protocol = "GpuKvBackend"
doc = "Pages on the device."
expressions = ["self.pool"]
adapter = "app.backends:PoolBackend"
protocol_text = """
class GpuKvBackend(Protocol):
    def allocate_pages(self, uuid: str, n: int) -> list[int]: ...
    def release_pages(self, uuid: str) -> None: ...
    def free_pages(self) -> int: ...
"""

[[handles]]
name = "host_kv"
protocol = "HostKvBackend"
doc = "Pages on the host."
expressions = ["self.host"]
adapter = "app.backends:HostBackend"
protocol_text = """
class HostKvBackend(Protocol):
    def allocate_pages(self, uuid: str, n: int) -> list[int]: ...
"""

[[handles]]
name = "req"
protocol = "KvRequest"
doc = "What one request knows of the worker."
rest = true
request = true

[[rewrites]]
from = "self._take_pages"
to = "self.gpu_kv.allocate_pages"
'''
WORKER = worker_source(
    """
def admit(self, uuid: str, wanted: int) -> list[int]:
    if self.room() < wanted:
        return self.host.allocate_pages(uuid, wanted)
    return self._take_pages(uuid, wanted)

def room(self) -> int:
    return self.pool.free_pages() - self.watermark
""",
    tail="\n    # ============ Rest ============\n\n    def _take_pages(self, uuid, n):\n        return [0] * n\n",
)
RECIPE = parse_recipe(TEXT, "cache.toml")
BACKENDS = """\
class PoolBackend:
    def __init__(self, pool):
        pass


class HostBackend(PoolBackend):
    pass
"""
