"""Run with the folder before/ or after/ first on the path."""

from app.worker import Worker

worker = Worker()
print(worker.allocate("a", 3), worker.allocate("b", 1), worker.swap("a"), worker.allocate("c", 2))
print(worker.load("a", 3, pin=True), worker.pool.closed)
