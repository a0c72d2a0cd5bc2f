"""Handlers cut out of Worker."""
