"""The step policy on a real model: its device, and the loop that admits, decodes, parks and ends requests."""
