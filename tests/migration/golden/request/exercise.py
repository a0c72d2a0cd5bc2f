"""Run with the folder before/ or after/ first on the path."""

from app.worker import Worker

worker = Worker(device=6, host=8, watermark=1)
print(worker.admit("a", 2), worker.admit("b"), worker.admit("c", 2), worker.order, worker.evicted)
print(worker.admit("d", wanted=3), worker.order, worker.evicted, worker.store.lent)
try:
    worker.admit("e", 99)
except MemoryError as error:
    print(error, worker.order, worker.device.lent, worker.store.lent)
print(sorted(worker.device.free), sorted(worker.store.free))
