"""Run with the folder before/ or after/ first on the path."""

from app.settings import Settings
from app.worker import Worker

worker = Worker(Settings(9), "")
print(worker.planned, worker.plan(3), worker.several([2, 5, 10]), worker.left()[0], worker.left()[1] is worker.args.kv)
