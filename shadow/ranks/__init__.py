"""A comparison of several ranks: every rank of one path against the same rank of the other."""
