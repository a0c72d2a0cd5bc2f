import torch


class KVCacheManager:
    def __init__(self, worker):
        self._worker = worker

    def load_host_kv_to_gpu(self, pool, sequences):
        """Host pages of `sequences` into their GPU pages."""
        size = pool.config.page_size
        counts = torch.tensor([-(-(seq.current_context_length - 1) // size) for seq in sequences])
        self._worker.host.async_load_layer_paged_kv_to_device(sequences, counts, pool)

    def pages_needed(self, seq, size):
        return -(-(seq.prompt_length + seq.max_decode_length) // size)
