"""From a run that diverges to the smallest one that still does, as a test that anybody can run."""

from shadow.shrink.events import EventCount
from shadow.shrink.reduce import Shrunk, shrink
from shadow.shrink.replay import Replay, Signature
from shadow.shrink.scenario import Scenario, ScenarioError, read_scenario
from shadow.shrink.script import NotReproducedError, verified_script

__all__ = [
    "EventCount",
    "NotReproducedError",
    "Replay",
    "Scenario",
    "ScenarioError",
    "Shrunk",
    "Signature",
    "read_scenario",
    "shrink",
    "verified_script",
]
