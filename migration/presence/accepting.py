"""Obstacles that somebody vouches for: what stands unseen against a proof, named without its lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from migration.presence.declaring import all_or_none
from migration.presence.findings import HasattrFinding

_LINES = re.compile(r" in line \d+| \(line \d+\)|:\d+(?=[ )]|$)")


def obstacle_name(text: str) -> str:
    """An obstacle as a recipe names it: it stays the same when lines move."""
    return _LINES.sub("", text)


def accept(findings: Iterable[HasattrFinding], accepted: Collection[str]) -> tuple[HasattrFinding, ...]:
    """The findings as they are for whoever knows that nothing comes of the `accepted` obstacles."""
    known = {obstacle_name(text) for text in accepted}
    settled = []
    for finding in findings:
        assumed = finding.assumed
        if assumed is not None and known.issuperset(map(obstacle_name, assumed.obstacles)):
            finding = replace(
                finding,
                verdict=assumed.verdict,
                reason=assumed.reason,
                rewrite=assumed.rewrite,
                assumed=None,
            )
        settled.append(finding)
    return all_or_none(tuple(settled))
