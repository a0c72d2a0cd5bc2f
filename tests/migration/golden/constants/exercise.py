"""Run with the folder before/ or after/ first on the path."""

from app.worker import Worker

worker = Worker()
print(worker.always(), worker.never(), worker.depends(), worker.depends(), worker.rest())
