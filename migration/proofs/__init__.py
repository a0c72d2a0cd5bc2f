"""Proof files: what was proved when a slice landed, and how anybody checks it again."""
