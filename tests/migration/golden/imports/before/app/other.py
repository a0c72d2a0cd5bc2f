"""Borrows from the worker module."""

from app.worker import json

print_me = json.dumps([1])
