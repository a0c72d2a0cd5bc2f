"""Ports as commits through which `git blame` still finds who wrote the lines that moved."""
