"""A process for run_alone that says one thing."""

import sys

from shadow.alone import speaker

with speaker(sys.argv[2]) as connection:
    connection.send("one thing")
