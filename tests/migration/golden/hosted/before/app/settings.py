"""Star-imported by the worker."""

PAGES = 7
