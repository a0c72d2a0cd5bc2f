"""MG2xx: the result was checked before anything was written, and did not pass."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG201": Explanation(
        what="One of the files as they would be written does not compile.",
        why="Nobody could import it.",
        past="This is a fault of migrate, not of your code: please report it with the method. Until it is "
        "mended list the method in `stays`.",
    ),
    "MG202": Explanation(
        what="A moved body, with the handles taken out again, is not the original. The check reads both files "
        "afresh and knows nothing of how the move was made.",
        why="It would do something else than before.",
        past="This is a fault of migrate: please report it with the method. Until it is mended list the method "
        "in `stays`.",
    ),
    "MG203": Explanation(
        what="pyflakes finds a name in the result that is undefined, or an import that is unused, and was not "
        "before.",
        why="An undefined name is an error at the first call. An import that lost its last use may be one "
        "that other files take from here.",
        past="Import the name in the worker by its own name (not by `*`, not under a condition), or list the "
        "method in `stays`.",
    ),
    "MG204": Explanation(
        what="The comments of the files before and after are not the same ones, as often.",
        why="Comments say why code is as it is; a move must not lose one.",
        past="This is a fault of migrate: please report it. Until it is mended list the method in `stays`, or "
        "put the comment named on a line of its own inside the method.",
    ),
    "MG205": Explanation(
        what="A line changed that has nothing to do with the move, or an import changed otherwise than planned.",
        why="A reviewer relies on there being no other change.",
        past="This is a fault of migrate: please report it.",
    ),
    "MG206": Explanation(
        what="A stub has another signature than the method had, or does not pass each argument on as it came.",
        why="Callers would notice: a default, a keyword, a `*args`.",
        past="This is a fault of migrate: please report it with the signature. Until it is mended list the "
        "method in `stays`.",
    ),
    "MG207": Explanation(
        what="Running the same command on the result would not find everything done.",
        why="A command that does something else the second time cannot be run again safely after an "
        "interruption.",
        past="This is a fault of migrate: please report it.",
    ),
    "MG208": Explanation(
        what="The files are not those that the proof was written for: the class, the handler or an adapter was "
        "edited since, or the original that they restore has another digest; or a newer slice of the same file "
        "does not hold, so that the state that this one left cannot be restored.",
        why="The proof says of these bytes, and of no others, that nothing changed in the move.",
        past="Take the edit back, and make it again in a commit after the slice has landed; or fold the slice "
        "back (`migrate inline`), edit the class and cut again.",
    ),
}
