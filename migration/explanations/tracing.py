"""MG521 and on: recording types while a program runs."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG521": Explanation(
        what="The types file was not written by this version of `migrate trace`, or was changed since.",
        why="A type that is read wrongly would end up in a Protocol.",
        past="Record it anew: `migrate trace -o types.json --class app.worker:Worker -- python -m pytest`.",
    ),
    "MG522": Explanation(
        what="The command after `--` cannot be started: there is no such program, or it may not be executed.",
        why="Types are recorded while it runs.",
        past="Give its path, or run it through its interpreter: `-- python -m pytest`.",
    ),
    "MG523": Explanation(
        what="The program ran, and no object of a class that was named was made in it.",
        why="Nothing was seen, so nothing can be recorded; an empty file would look like a result.",
        past="Run something that uses the class. Name it by the module that defines it "
        "(`app.worker:Worker`); a class of the script itself is `__main__:Worker`.",
    ),
    "MG524": Explanation(
        what="The types file has no entry for the class, or has several and none was named.",
        why="The types of another class would be wrong ones.",
        past="Trace it with --class, or name the one that is meant.",
    ),
}
