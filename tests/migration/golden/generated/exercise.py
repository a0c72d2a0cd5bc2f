"""Run with the folder before/ or after/ first on the path."""

from app.worker import Worker

worker = Worker()
print(worker.allocate("a", 3), worker.allocate("b", 1), worker.reset(), worker.allocate("c", 2), worker.names)
