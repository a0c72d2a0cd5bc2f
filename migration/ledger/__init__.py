"""Writing several files as one, and what there was before."""
