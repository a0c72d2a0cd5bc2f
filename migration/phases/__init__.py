"""The three pull requests of a slice: port copies, gate routes, cleanup deletes."""
