"""What `FlashInferPagedAttention` is made of; only `package` imports flashinfer, only `objects` imports tvm_ffi."""
