"""The comparison of two runs of a random class sees what the program does, not when the collector runs."""

from __future__ import annotations

import gc

from .random_class import Run

CYCLE = """
class C:
    def __init__(self, k='x'):
        found = [[] for _ in range(2000)]
        self.me = self

    def __del__(self, k='x'):
        try:
            tick()
            note('gone')
            note(hasattr(self, 'me'))
        except BaseException:
            pass

    def m0(self, k='x'):
        tick()

    m1 = m2 = m0
"""


def test_a_cycle_with_a_finalizer_shows_nothing_in_a_run_nor_after_it():
    run = Run(CYCLE, 1)
    assert (run.shown, run.seen) == ([], []) and gc.isenabled()
    gc.collect()
    assert (run.shown, run.seen) == ([], [])
