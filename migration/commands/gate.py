"""`migrate gate`: phase 2, route each method through a gate."""

from __future__ import annotations

import argparse

from migration.cli import Commands
from migration.commands.options import add_slice, add_write_modes


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "gate",
        help="phase 2: rename the legacy bodies and put a gate before each",
        description="Each body of the slice becomes _legacy_<name>, its public name a gate.\n"
        "<PREFIX>_NATIVE=1 routes to the handler; <PREFIX>_COMPARE=1 runs both and returns the legacy result; "
        "with neither a gate costs one attribute test.",
        epilog="examples:\n  migrate gate kv --diff\n  BATCHGEN_WORKER_KV_COMPARE=1 python serve.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_slice(parser)
    add_write_modes(parser)


def run(arguments: argparse.Namespace) -> int:
    from migration.commands.phase import carry_out
    from migration.phases.gate import GatePlan, plan_gate
    from migration.proofs.record import record_gate

    return carry_out(arguments, plan_gate, GatePlan, record_gate)
