"""`migrate cleanup`: phase 3, the legacy bodies and the gates go."""

from __future__ import annotations

import argparse

from migration.cli import Commands
from migration.commands.options import add_slice, add_write_modes


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "cleanup",
        help="phase 3: delete legacy bodies and gates",
        description="Legacy bodies, gates and imports that only they used go. A delegate stays only where the name "
        "is public, decorated, or mentioned outside the slice.",
        epilog="example:\n  migrate cleanup kv --diff",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_slice(parser)
    add_write_modes(parser)


def run(arguments: argparse.Namespace) -> int:
    from migration.commands.phase import carry_out
    from migration.phases.cleanup import CleanupPlan, plan_cleanup
    from migration.proofs.record import record_cleanup

    return carry_out(arguments, plan_cleanup, CleanupPlan, record_cleanup)
