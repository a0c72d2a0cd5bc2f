"""What one gate found on each of several ranks, as one summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shadow.experiment.ledger import MethodCount, Summary, Verdict, worst


def merged(summaries: Sequence[Summary]) -> Summary:
    """Counts add up; the verdict is the worst of the ranks that called the gate at all, a fault's of any."""
    first = summaries[0]
    if len(summaries) == 1:
        return first
    named: dict[str, list[MethodCount]] = {}
    skipped: Counter[str] = Counter()
    for summary in summaries:
        skipped.update(dict(summary.skipped))
        for name, count in summary.methods:
            named.setdefault(name, []).append(count)
    reached = {name for name, counts in named.items() if sum(count.calls for count in counts)}
    return Summary(
        first.gate,
        worst(s.verdict for s in summaries if s.calls or s.verdict is Verdict.HARNESS_FAILED),
        sum(summary.calls for summary in summaries),
        sum(summary.compared for summary in summaries),
        sum(summary.diverged for summary in summaries),
        sum(summary.faults for summary in summaries),
        tuple(skipped.most_common()),
        tuple((name, _added(named[name])) for name in sorted(named)),
        first.report,
        tuple(name for name in first.unreached if name not in reached),
    )


def _added(counts: Sequence[MethodCount]) -> MethodCount:
    """A branch is seen where any rank has seen it."""
    total = MethodCount()
    unseen: list[tuple[str, ...]] = []
    for count in counts:
        total.calls += count.calls
        total.compared += count.compared
        total.diverged += count.diverged
        total.values += count.values
        total.faults += count.faults
        total.skipped.update(count.skipped)
        total.uncounted.update(count.uncounted)
        if count.branches:
            total.branches = count.branches
            unseen.append(count.unseen)
    if unseen:
        total.unseen = tuple(label for label in unseen[0] if all(label in of_one for of_one in unseen))
        total.branches_seen = total.branches - len(total.unseen)
    return total
