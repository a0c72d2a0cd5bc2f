"""Noise floors: bounds measured by A/A runs, and what is judged by them. Imports neither torch nor batchgen."""

from shadow.noise.bound import Bound, Class, Judgement, StepScore, calibrate, judge
from shadow.noise.flip import Flip, FlipKind, classify_flip
from shadow.noise.store import Conditions, NoiseFileError, NoiseFloor, load, save

__all__ = [
    "Bound",
    "Class",
    "Conditions",
    "Flip",
    "FlipKind",
    "Judgement",
    "NoiseFileError",
    "NoiseFloor",
    "StepScore",
    "calibrate",
    "classify_flip",
    "judge",
    "load",
    "save",
]
