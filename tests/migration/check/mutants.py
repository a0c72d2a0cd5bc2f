"""Small edits of an honest tree, each of which one rule must catch: where, and with a fix where it has one."""

from __future__ import annotations

from dataclasses import dataclass

from .support import HANDLER, WORKER

NEW = "<new file>"


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in `path`; the finding stands on the first line of `line`, in `at` (default: `path`)."""

    code: str
    phase: str
    path: str
    old: str
    new: str
    line: str
    at: str = ""
    fixed: bool = False


FREE = "        return self._host_kv.free_pages()"
VIEW = "self._state.core_engine.host_paged_kv_worker_view"
OVER = "        return used > host_kv_eviction_watermark"
EVICT = "        self._state.held.update(uuids)\n"
GATHER = "        dist.all_gather_object(gathered, free)\n"
MODEL = "        self._state.model = self._executor.model\n"
#: Lines of the class's file are indented by tabs.
T = "\t"

MUTANTS = (
    # No self.host_paged_kv_worker_view reference drift: every spelling of it.
    Mutant(
        "MG610",
        "port",
        HANDLER,
        FREE,
        f"        return {VIEW}.free_pages()",
        "return self._state.core_engine.host_paged",
    ),
    Mutant(
        "MG610",
        "port",
        HANDLER,
        FREE,
        "        return self._state.host_paged_kv_worker_view.free_pages()",
        "_state.host_p",
    ),
    Mutant(
        "MG610",
        "gate",
        HANDLER,
        FREE,
        "        engine = self._state.core_engine\n        return engine.host_paged_kv_worker_view.free_pages()",
        "return engine.host_paged",
    ),
    Mutant(
        "MG610",
        "gate",
        HANDLER,
        FREE,
        '        return getattr(self._state.core_engine, "host_paged_kv_worker_view").free_pages()',
        "return getattr(",
    ),
    Mutant(
        "MG610",
        "cleanup",
        HANDLER,
        FREE,
        '        return vars(self._state.core_engine)["host_paged_kv_worker_view"].free_pages()',
        "return vars(",
    ),
    Mutant(
        "MG610",
        "port",
        HANDLER,
        FREE,
        "        return (lambda e=0: self._engine().host_paged_kv_worker_view)().free_pages()\n\n"
        "    def _engine(self):\n        return self._state.core_engine",
        "return (lambda",
    ),
    Mutant(
        "MG610",
        "port",
        HANDLER,
        MODEL,
        MODEL + "        return self._state.model\n",
        "return self._state.model",
    ),
    # No self.model_config access.
    Mutant(
        "MG611",
        "port",
        HANDLER,
        "        if self._config.layers > 1:",
        "        if self._state.model_config.layers > 1:",
        "if self._state.model_config",
        fixed=True,
    ),
    Mutant(
        "MG611",
        "gate",
        HANDLER,
        "        if self._config.layers > 1:",
        "        c = self._state\n        if c.model_config.heads > 1:",
        "if c.model_config",
    ),
    # host_kv_eviction_watermark is computed from the snapshot.
    Mutant(
        "MG612",
        "port",
        HANDLER,
        OVER,
        "        return used > self._state.host_kv_eviction_watermark",
        "return used >",
    ),
    Mutant(
        "MG612",
        "port",
        HANDLER,
        "self._config.total_pages * self._config.watermark_percent // 100",
        "self._state.world_size * 10",
        "host_kv_eviction_watermark = self._state",
    ),
    # The worker's own state.
    Mutant(
        "MG613",
        "port",
        HANDLER,
        EVICT,
        EVICT + "        self._state._pending_kv_append_tensors.clear()\n",
        "_pending_kv_append_tensors.clear()",
    ),
    Mutant(
        "MG613",
        "port",
        HANDLER,
        EVICT,
        EVICT + '        setattr(self._state, "_pending" "_kv_append_tensors", [])\n',
        'setattr(self._state, "_pending"',
    ),
    # The handler is stateless.
    Mutant("MG614", "port", HANDLER, EVICT, EVICT + "        self._last = uuids\n", "self._last = uuids"),
    Mutant(
        "MG614", "port", HANDLER, EVICT, EVICT + '        setattr(self, "_last", uuids)\n', "setattr(self"
    ),
    Mutant("MG614", "gate", HANDLER, EVICT, EVICT + "        self.seen[0] = uuids\n", "self.seen[0]"),
    Mutant("MG614", "gate", HANDLER, EVICT, EVICT + "        self.seen.append(uuids)\n", "self.seen.append"),
    Mutant(
        "MG614",
        "port",
        HANDLER,
        "        self._config = config\n",
        "        self._config = config\n        self._memo = {}\n",
        "self._memo = {}",
    ),
    # Imports.
    Mutant(
        "MG615",
        "port",
        HANDLER,
        "from app.pools import DualKVCacheCoordinator\n",
        "",
        "isinstance(manager, DualKVCacheCoordinator)",
        fixed=True,
    ),
    Mutant(
        "MG615",
        "port",
        HANDLER,
        "from app.pools import DualKVCacheCoordinator\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from app.pools import DualKVCacheCoordinator\n",
        "    from app.pools",
    ),
    Mutant(
        "MG615",
        "port",
        "app/pools.py",
        "class DualKVCacheCoordinator",
        "class DualCoordinator",
        "from app.pools",
        HANDLER,
    ),
    Mutant("MG616", "port", HANDLER, OVER, "        return usd > host_kv_eviction_watermark", "return usd"),
    Mutant(
        "MG640",
        "port",
        HANDLER,
        "from app.pools import DualKVCacheCoordinator\n",
        "from app.pools import DualKVCacheCoordinator\nfrom app.batch_worker import ceil_div\n",
        "from app.batch_worker import ceil_div",
    ),
    Mutant(
        "MG640",
        "gate",
        "app/pools.py",
        '"""What',
        'import app.batch_worker\n"""What',
        "from app.pools",
        HANDLER,
    ),
    Mutant("MG641", "port", "app/worker/kv_manager/__init__.py", NEW, "", "", HANDLER),
    Mutant("MG641", "port", "app/worker.py", NEW, "", "", HANDLER),
    # The Protocol, not hasattr.
    Mutant(
        "MG617",
        "port",
        HANDLER,
        "        if self._parallel.available:",
        '        if hasattr(self._state, "parallel_manager"):',
        "if hasattr(",
        fixed=True,
    ),
    Mutant(
        "MG617",
        "gate",
        HANDLER,
        "        if self._parallel.available:",
        '        if getattr(self._state, "parallel_manager", None):',
        "if getattr(",
    ),
    Mutant(
        "MG617",
        "gate",
        HANDLER,
        "        if self._parallel.available:",
        '        if "parallel_manager" in vars(self._state):',
        'if "parallel_manager"',
    ),
    Mutant(
        "MG618",
        "port",
        HANDLER,
        "        if self._parallel.available:",
        "        if self._parallel is not None:",
        "is not None",
    ),
    Mutant(
        "MG618",
        "port",
        HANDLER,
        "        if self._parallel.available:",
        '        if getattr(self._parallel, "available", False):',
        "if getattr(",
    ),
    # Calls.
    Mutant(
        "MG619",
        "port",
        HANDLER,
        "self._rebalancer.put_on_hold(uuids)",
        "self._state._put_sequences_on_hold(uuids)",
        "_put_sequences_on_hold(uuids)",
        fixed=True,
    ),
    Mutant(
        "MG619",
        "gate",
        HANDLER,
        "        self._rebalancer.put_on_hold(uuids)",
        "        hold = self._state._put_sequences_on_hold\n        hold(uuids)",
        "hold = self",
    ),
    Mutant("MG620", "port", HANDLER, MODEL, "", "self._executor.configure_decoding(self._config.layers)"),
    Mutant(
        "MG620",
        "gate",
        HANDLER,
        "            self._executor.configure_decoding(1)\n",
        "            self._executor.configure_decoding(1)\n            return\n",
        "self._executor.configure_decoding(1)",
    ),
    Mutant(
        "MG620",
        "cleanup",
        HANDLER,
        MODEL,
        "        for _ in uuids:\n            self._state.model = self._executor.model\n",
        "self._executor.configure_decoding(self._config.layers)",
    ),
    Mutant(
        "MG620",
        "port",
        WORKER,
        T * 2 + "self.model = self.executor.model\n",
        "",
        "self.executor.configure_decoding(self",
    ),
    Mutant(
        "MG621",
        "port",
        HANDLER,
        "        parallel: Parallel,\n",
        "        parallel: Parallel,\n        extra: Any,\n",
        "def __init__",
    ),
    Mutant("MG621", "port", HANDLER, "        *,\n", "", "def __init__"),
    Mutant(
        "MG621",
        "port",
        HANDLER,
        "        state: KvState,\n",
        "        state: KvState = None,\n",
        "def __init__",
    ),
    Mutant(
        "MG622",
        "port",
        HANDLER,
        "        auxiliary.load(uuids, stream=self._state.stream)\n",
        "",
        "primary.load(uuids",
    ),
    Mutant(
        "MG623",
        "port",
        HANDLER,
        "            self._state.gpu_manager.wait(uuids)\n",
        "            pass\n",
        "gpu_manager.free(uuids)",
    ),
    Mutant(
        "MG623",
        "gate",
        HANDLER,
        "            self._state.gpu_manager.wait(uuids)\n",
        "            if rank:\n                self._state.gpu_manager.wait(uuids)\n",
        "gpu_manager.free(uuids)",
    ),
    Mutant(
        "MG623",
        "port",
        HANDLER,
        '            raise RuntimeError("not loaded") from error\n',
        "            logger.info(error)\n",
        "gpu_manager.free(uuids)",
    ),
    Mutant(
        "MG624",
        "port",
        HANDLER,
        "self._state.batch.assign_rank(uuid, rank)",
        "self._state.batch[uuid].assigned_rank = rank",
        "assigned_rank = rank",
    ),
    # The gate.
    Mutant(
        "MG631",
        "port",
        WORKER,
        T + "def close(self):\n",
        T + "def close(self):\n" + T * 2 + 'print("APP_KV_NATIVE")\n' + T * 2 + "x = 'APP_KV_NATIVE'\n",
        "x = 'APP_KV_NATIVE'",
    ),
    Mutant(
        "MG631",
        "port",
        WORKER,
        T + "def close(self):",
        T + "def _legacy__load(self):\n" + T * 2 + "pass\n\n" + T + "def close(self):",
        "def _legacy__load",
    ),
    Mutant(
        "MG631",
        "gate",
        WORKER,
        T * 2 + "return self._legacy__free_pages()",
        T * 2 + "assert self._legacy__free_pages() >= 0\n" + T * 2 + "return self._legacy__free_pages()",
        "def _free_pages",
    ),
    Mutant("MG631", "gate", WORKER, T + "def _legacy__evict(", T + "def _old_evict(", "def _evict", HANDLER),
    Mutant("MG631", "gate", WORKER, "_KV_GATE = Gate(", "_KV_GATES = Gate(", '"""The worker'),
    Mutant(
        "MG631",
        "cleanup",
        WORKER,
        T + "def close(self):",
        T + "def _legacy__load(self):\n" + T * 2 + "pass\n\n" + T + "def close(self):",
        "def _legacy__load",
    ),
    Mutant(
        "MG631",
        "cleanup",
        "app/pools.py",
        "class NodeStats:",
        "FLAG = 'APP_KV_COMPARE'\n\n\nclass NodeStats:",
        "FLAG =",
    ),
    # Bodies.
    Mutant(
        "MG632",
        "gate",
        WORKER,
        T * 2 + "self.held.update(uuids)",
        T * 2 + "self.held.update(list(uuids))",
        "def _evict",
        HANDLER,
        fixed=True,
    ),
    Mutant(
        "MG632",
        "port",
        WORKER,
        "tokens // self.PAGE_SIZE + 1",
        "tokens // self.PAGE_SIZE",
        "def _pages_of",
        HANDLER,
        fixed=True,
    ),
    Mutant("MG632", "port", HANDLER, EVICT, "", "def _evict", fixed=True),
    Mutant("MG632", "cleanup", HANDLER, EVICT, "", "class KVCacheManager"),
    Mutant(
        "MG637",
        "port",
        HANDLER,
        "primary.load(uuids, stream=self._state.stream)\n        aux",
        "primary.load(uuids)\n        aux",
        "def _load",
    ),
    Mutant("MG637", "gate", HANDLER, "except KeyError as", "except Exception as", "def _release"),
    Mutant(
        "MG637",
        "gate",
        HANDLER,
        "        finally:\n            self._state.held.difference_update(uuids)\n",
        "        self._state.held.difference_update(uuids)\n",
        "def _release",
    ),
    Mutant(
        "MG637",
        "gate",
        HANDLER,
        '            raise RuntimeError("not loaded") from error',
        "            return None",
        "def _release",
    ),
    # Signatures, handles, callers, flags.
    Mutant(
        "MG633",
        "gate",
        WORKER,
        T + "def _pages_of(self, tokens: int, *, exact: bool = False) -> int:\n" + T * 2 + "if _KV",
        T + "def _pages_of(self, tokens: int, *, exact: bool = True) -> int:\n" + T * 2 + "if _KV",
        "def _pages_of",
        fixed=True,
    ),
    Mutant(
        "MG633",
        "gate",
        WORKER,
        "return self._legacy__pages_of(tokens, exact=exact)",
        "return self._legacy__pages_of(tokens)",
        "def _pages_of",
    ),
    Mutant(
        "MG633",
        "cleanup",
        WORKER,
        T + "def _release(self, uuids, rank: int):",
        T + "def _release(self, uuids, rank: int, more):",
        "def _release",
    ),
    Mutant(
        "MG634", "port", HANDLER, "        self._rebalancer.put_on_hold(uuids)\n", "", "rebalancer: Callable"
    ),
    Mutant("MG634", "gate", HANDLER, "        self._parallel = parallel\n", "", "parallel: Parallel,"),
    Mutant(
        "MG635",
        "gate",
        HANDLER,
        "    def _evict(self",
        "    def plan(self):\n        return None\n\n    def _evict(self",
        "def plan",
    ),
    Mutant(
        "MG635",
        "cleanup",
        HANDLER,
        "    def _evict(self",
        "    def plan(self):\n        return self.step()\n\n"
        "    def step(self):\n        return None\n\n    def _evict(self",
        "def step",
    ),
    # Ranks.
    Mutant(
        "MG638",
        "port",
        HANDLER,
        "        if not self._state.batch:",
        "        if self._state.rank > 0:",
        "if self._state.rank > 0",
    ),
    Mutant(
        "MG638",
        "port",
        HANDLER,
        GATHER,
        "        if self._state.rank == 0:\n    " + GATHER,
        "if self._state.rank == 0:\n            dist",
    ),
    Mutant(
        "MG638",
        "gate",
        HANDLER,
        GATHER,
        "        mine = self._state.rank == free\n        if mine:\n    " + GATHER,
        "if mine:",
    ),
    Mutant(
        "MG638",
        "port",
        HANDLER,
        GATHER,
        "        for _ in self._state._uuid_to_local_map:\n    " + GATHER,
        "for _ in self._state._uuid",
    ),
    Mutant(
        "MG638",
        "port",
        HANDLER,
        EVICT,
        EVICT + "        if self._state.rank == 0:\n            self._agree(1)\n",
        "if self._state.rank == 0:\n            self._agree",
    ),
    Mutant(
        "MG638",
        "cleanup",
        HANDLER,
        GATHER,
        '        import os\n        if os.environ.get("DEBUG"):\n    ' + GATHER,
        'if os.environ.get("DEBUG")',
    ),
    # Collaborators.
    Mutant(
        "MG639",
        "port",
        HANDLER,
        EVICT,
        EVICT + "        self._state.gpu_manager._sequences.clear()\n",
        "._sequences.clear()",
    ),
    Mutant(
        "MG639",
        "gate",
        HANDLER,
        EVICT,
        EVICT + "        m = self._state.gpu_manager\n        m._sequences.clear()\n",
        "m._sequences",
    ),
    Mutant(
        "MG639",
        "gate",
        HANDLER,
        EVICT,
        EVICT + "        self._executor._model = None\n",
        "self._executor._model",
    ),
    Mutant(
        "MG642",
        "port",
        HANDLER,
        "    def _evict(self",
        "    def _load(self, uuids):\n        pass\n\n    def _evict(self",
        "def _load(self, uuids):\n        primary",
    ),
    Mutant(
        "MG643",
        "port",
        HANDLER,
        '        except KeyError as error:\n            raise RuntimeError("not loaded") from error',
        "        except KeyError:\n            raise",
        "except KeyError:",
    ),
    Mutant(
        "MG643",
        "port",
        HANDLER,
        '        except KeyError as error:\n            raise RuntimeError("not loaded") from error',
        '        except Exception as error:\n            logger.warning("%s", error)',
        "except Exception as error",
    ),
    Mutant(
        "MG644",
        "port",
        HANDLER,
        "            executor=lambda: worker.executor,",
        "            executor=worker.gpu_manager,",
        "executor=worker.gpu_manager",
    ),
    Mutant(
        "MG644",
        "port",
        "app/backends.py",
        "    def __init__(self, read):\n        self._read = read",
        "    def __init__(self, worker):\n        self._read = worker.gpu_manager",
        "worker.gpu_manager",
    ),
    Mutant("MG645", "port", HANDLER, EVICT, "        self._state.helt.update(uuids)\n", "self._state.helt"),
)
