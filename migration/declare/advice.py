"""Which attributes of a class `migrate declare` would declare, and with what command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from migration.presence.accepting import accept, obstacle_name
from migration.presence.findings import HasattrFinding

_SOUND = ("optional", "declared", "constant", "attribute")


def declare_commands(findings: Sequence[HasattrFinding], target: Sequence[str]) -> dict[str, str]:
    """Attribute -> the command that declares it, with what has to be vouched for; `target` are its words for
    the class. `findings` are all of the class."""
    obstacles = {text for finding in findings if finding.assumed for text in finding.assumed.obstacles}
    settled = accept(findings, obstacles)
    found: dict[str, str] = {}
    for name in dict.fromkeys(finding.attribute for finding in findings if finding.attribute):
        own = [one for one in settled if one.attribute == name]
        needed = any(one.rewrite.declares and one.rewrite.kind in ("optional", "declared") for one in own)
        if needed and all(one.rewrite.kind in _SOUND for one in own):
            words = ["migrate", "declare", *target, "--attribute", name]
            for text in _obstacles(findings, name):
                words += ["--accept", text]
            found[name] = shlex.join(words)
    return found


def _obstacles(findings: Sequence[HasattrFinding], name: str) -> Mapping[str, None]:
    assumed = (one.assumed for one in findings if one.attribute == name and one.assumed is not None)
    return dict.fromkeys(obstacle_name(text) for one in assumed for text in one.obstacles)
