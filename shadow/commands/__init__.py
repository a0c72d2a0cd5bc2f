"""The commands of `shadow`, one a module: `add_parser` and `run`."""
