"""Replays of captured decode steps against eager runs of the same steps, in one process, on the device they are on.

`shadow compare --pairing bucket` has a process for each side, which part where their tokens do. Here there is one
worker: each step that it replays is run again on the same inputs, before anything of it is used.
"""
