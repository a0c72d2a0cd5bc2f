"""One module a command: `configure` adds its parser, `run` carries it out and returns the exit code.

What a command needs is imported inside `run`, so that `migrate --help` loads nothing but argparse.
"""

#: The commands in the order in which `migrate --help` lists them.
COMMANDS = (
    "inventory",
    "plan",
    "split",
    "declare",
    "port",
    "gate",
    "cleanup",
    "check",
    "verify",
    "inline",
    "replay",
    "commute",
    "trace",
    "status",
    "burndown",
    "undo",
    "explain",
)
