"""A toy engine with the hook points of the real one: small enough to plant faults in by text substitution."""
