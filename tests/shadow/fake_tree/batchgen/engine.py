from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    model: str = "toy"
    page_size: int = 4
    gpu_kv_pages: int = 64
    threads: int = 1


def build_worker(options):
    from batchgen.batchgen_worker import BatchGenWorker

    return BatchGenWorker(options)
