"""The step policy: one token for every active sequence a step, preemption between boundaries, spill and resume.

docs/step.md has the rules. Pure planners decide, `apply` steps do; the boundary policy (`batchgen_worker.py`) shares
pools, models and executor, and neither calls the other.
"""
