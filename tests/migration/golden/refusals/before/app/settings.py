"""Settings."""

PAGES = 4
