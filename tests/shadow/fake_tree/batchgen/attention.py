class AttnWrapperBase:
    cur_batch = None
    cache_seqlens = None
