"""Run with the folder before/ or after/ first on the path."""

from app.pooled import Evicting, Pooled
from app.worker import Worker

for kind in (Worker, Pooled, Evicting):
    worker = kind()
    print(kind.__name__, worker.describe(), worker.close(), worker.rest(), worker.pages)
