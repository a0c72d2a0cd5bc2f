"""Functions of libraries that may run a second time without anybody seeing it, by dotted name."""

from __future__ import annotations

_ALLOWED_NAMES = """
_thread.get_ident abc array base64 binascii bisect cmath collections contextlib copy dataclasses datetime
decimal difflib enum fractions functools genericpath hashlib heapq itertools json keyword logging math numbers
numpy operator os.cpu_count os.environ os.getenv os.getpid os.path posixpath random re reprlib statistics string
struct textwrap threading.Condition threading.Event threading.Lock threading.RLock
threading.Semaphore threading.current_thread threading.get_ident time torch types typing typing_extensions
unicodedata uuid zlib
"""
_DENIED_NAMES = """
functools.lru_cache functools.cache logging.FileHandler logging.StreamHandler logging.addLevelName
logging.basicConfig logging.captureWarnings logging.config logging.disable logging.handlers
logging.setLogRecordFactory logging.setLoggerClass logging.shutdown numpy.fromfile numpy.load numpy.memmap
numpy.save numpy.savetxt numpy.savez numpy.savez_compressed numpy.setbufsize numpy.seterr time.sleep time.tzset
torch.compile torch.cuda.set_device torch.distributed torch.hub torch.jit torch.load torch.multiprocessing
torch.onnx torch.profiler torch.save torch.set_default_device torch.set_default_dtype
torch.set_float32_matmul_precision torch.set_num_interop_threads torch.set_num_threads
torch.use_deterministic_algorithms torch.utils.data
"""
_BUILTINS_DENIED_NAMES = "__import__ breakpoint compile eval exec exit globals help input open print quit"
_VOLATILE_NAMES = """
numpy.empty numpy.empty_like torch.empty torch.empty_like torch.empty_strided
time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns
time.process_time time.process_time_ns time.thread_time uuid.uuid1 uuid.uuid4
"""
_MUTATOR_NAMES = """
add append appendleft clear difference_update discard extend extendleft insert intersection_update move_to_end
pop popitem popleft remove reverse rotate setdefault sort symmetric_difference_update update
"""
_ALLOWED = frozenset(_ALLOWED_NAMES.split())
_DENIED = frozenset(_DENIED_NAMES.split())
_BUILTINS_DENIED = frozenset(_BUILTINS_DENIED_NAMES.split())
#: Answers that differ from call to call (memory that nobody has written yet, too): the candidate gets those that the
#: control got.
VOLATILE = frozenset(_VOLATILE_NAMES.split())
#: Methods that change the container they belong to.
MUTATORS = frozenset(_MUTATOR_NAMES.split())


def verdict_on(path: str) -> bool | None:
    """Whether what a dotted name means may run twice: the longest listed name decides; None: not listed."""
    module, _, name = path.rpartition(".")
    if module == "builtins":
        return name not in _BUILTINS_DENIED
    while path:
        if path in _DENIED:
            return False
        if path in _ALLOWED:
            return True
        path = path.rpartition(".")[0]
    return None
