"""`shadow compare --ranks N`: real processes, gloo between the ranks of a side."""
