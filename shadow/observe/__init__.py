"""What is looked at in a live worker: one probe for each sort of value, in the order of cause and effect.

Loaded only in the process that runs a worker, after `batchgen` has been imported from the tree to observe.
"""

from shadow.observe.content import Content
from shadow.observe.effects import Effects
from shadow.observe.free import FreeLists, TableTails
from shadow.observe.host import HostContent, Pending
from shadow.observe.launch import Bindings, Launch
from shadow.observe.layers import Layers
from shadow.observe.plans import Plans
from shadow.observe.probe import Probe, Subject, Values
from shadow.observe.sequences import Sequences
from shadow.observe.states import States
from shadow.observe.tables import PageTables, PoolCounts
from shadow.observe.writes import WRITE_SET

PROBES: tuple[Probe, ...] = (
    Effects(),
    PageTables(),
    Sequences(),
    PoolCounts(),
    FreeLists(),
    Launch(),
    Bindings(),
    Plans(),
    TableTails(),
    HostContent(),
    States(),
    Content(),
    WRITE_SET,
    Pending(),
    Layers(),
)
"""Every probe, causes first: the first difference of an event is the one nearest to its cause."""

__all__ = ["PROBES", "Probe", "Subject", "Values"]
