"""Where each slice stands: the phase that the tree shows, what says so, and since when."""
