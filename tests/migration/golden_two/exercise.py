"""Run with the folder before/, gated/ or after/ first on the path."""

from app.worker import Worker

print(Worker().run())
