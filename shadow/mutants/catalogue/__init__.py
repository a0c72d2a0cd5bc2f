"""The mutants that come with the harness, by theme. Importing registers them."""

from shadow.mutants.catalogue import host, ledger, padding, tables

__all__ = ["host", "ledger", "padding", "tables"]
