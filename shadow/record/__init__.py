"""Records of runs: written while a worker runs, replayed and compared anywhere, with no engine and no GPU."""
