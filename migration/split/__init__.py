"""Splitting one over-long method into helpers of the same class, along its own structure."""
