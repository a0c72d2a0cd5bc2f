"""A process for run_alone that is killed while it sends: four bytes of the hundred that it has announced."""

import os
import signal
import sys

os.write(int(sys.argv[2]), (100).to_bytes(4, "big") + b"half")
os.kill(os.getpid(), signal.SIGKILL)
