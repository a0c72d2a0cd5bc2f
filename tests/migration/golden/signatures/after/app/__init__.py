"""A small application."""
