"""Many records replayed at once: by processes of this machine, or by the machines of a Ray cluster."""
