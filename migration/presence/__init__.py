"""Which attributes exist when: the analysis behind the hasattr prover."""
