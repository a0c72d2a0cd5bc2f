"""The mutants that come with the harness, by theme. Importing registers them."""

from shadow.mutants.catalogue import (
    bindings,
    boundary,
    dual,
    graphs,
    host,
    ledger,
    lengths,
    padding,
    states,
    tables,
    tokens,
)

__all__ = [
    "bindings",
    "boundary",
    "dual",
    "graphs",
    "host",
    "ledger",
    "lengths",
    "padding",
    "states",
    "tables",
    "tokens",
]
