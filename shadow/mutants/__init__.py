"""Real bugs from public reports, each a fault that can be planted in a live worker: the test of the harness."""

from shadow.mutants.registry import Fault, Mutant, MutantError, Plant, Where, load, mutant

__all__ = ["Fault", "Mutant", "MutantError", "Plant", "Where", "load", "mutant"]
