"""Run with the folder before/ or after/ first on the path."""

from app.worker import Worker

worker = Worker()
print(worker.free(), worker.grow(16), worker.spend(3), worker.over_lines(), worker.rest())
print(worker.others([worker, Worker()]), worker.lazily(), worker.lazily())
print(worker.hold("a"), worker.until())
worker.ranks = [0, 1]
worker.limit = 7
print(worker.hold("a", "b"), worker.hold(), worker.rebalancer.held, worker.until())
try:
    del worker.engine
    print(worker.free())
except AttributeError as error:
    print(error)
