"""What is looked at in a live worker: one probe for each sort of value, in the order of cause and effect.

Loaded only in the process that runs a worker, after `batchgen` has been imported from the tree to observe.
"""

from shadow.observe.content import Content
from shadow.observe.probe import Probe, Subject, Values
from shadow.observe.sequences import Sequences
from shadow.observe.tables import PageTables, PoolCounts

PROBES: tuple[Probe, ...] = (PageTables(), Sequences(), PoolCounts(), Content())
"""Every probe, causes first: the first difference of an event is the one nearest to its cause."""

__all__ = ["PROBES", "Probe", "Subject", "Values"]
