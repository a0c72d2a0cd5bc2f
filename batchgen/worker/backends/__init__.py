"""The real things behind the Protocols of the handlers."""
