"""The kill matrix of the step policy: each planted fault of a decode step, and the check that must find it.

With `--all` every property is tried against every fault (minutes). Ends with 1 where a fault survives, or where a
check cries without one. Written to out/mutants/step-faults.md as well.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from reports import Report, Status, Table, Verdict, to_markdown, write_report
from tests.batchgen.scheduler import properties
from tests.batchgen.scheduler.test_faults import CAUGHT, Check, over
from tests.batchgen.scheduler.token_faults import TOKEN_FAULTS
from tests.batchgen.scheduler.tokens.test_token_faults import CAUGHT_BY

OUT = Path(__file__).resolve().parent.parent / "out" / "mutants"
SURVIVED = "SURVIVED"


def faults() -> list[tuple[str, Callable[[], AbstractContextManager[Any]], Check]]:
    """Name, how it is planted, and the check that must find it."""
    step = [(fault.__name__, fault, check) for fault, check in CAUGHT]
    return step + [(name, plant, CAUGHT_BY[name]) for name, plant in TOKEN_FAULTS.items()]


def finds(check: Check) -> bool:
    """Whether the check fails; a run that a fault breaks altogether counts."""
    try:
        check()
    except Exception:
        return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every property against every fault")
    everything = parser.parse_args().all
    logging.disable(logging.CRITICAL)  # hundreds of rows that are parked
    started = time.monotonic()
    checks = {check.__name__: check for _, _, check in faults()}
    if everything:
        checks |= {holds.__name__: over(holds) for holds in (*properties.ALWAYS, *properties.UNDISTURBED)}
    cries = [name for name, check in checks.items() if finds(check)]
    rows: list[tuple[str, str]] = []
    for name, plant, check in faults():
        with plant():
            found = [check.__name__] if finds(check) else [SURVIVED]
            if everything:
                found += [other for other, run in checks.items() if other not in found and finds(run)]
        rows.append((name, ", ".join(found)))
        print(f"  {name:40} {', '.join(found)}", flush=True)
    survivors = [name for name, found in rows if found.startswith(SURVIVED)]
    headline = (
        f"{len(rows) - len(survivors)} of {len(rows)} planted faults of a decode step found as declared"
    )
    headline += f"; without a fault these cry: {', '.join(cries)}" if cries else ""
    good = not (survivors or cries)
    report = Report(
        title="Faults of a decode step",
        verdict=Verdict(Status.PASS if good else Status.FAIL, 0 if good else 1, headline),
        tables=(Table("Kill matrix", ("planted fault", "found by"), tuple(rows)),),
        seconds=time.monotonic() - started,
    )
    OUT.mkdir(parents=True, exist_ok=True)
    write_report(OUT / "step-faults.md", to_markdown(report))
    print(headline)
    return report.verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
