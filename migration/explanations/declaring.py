"""MG122, MG123, MG538-MG541: what a recipe says of hasattr, and attributes that are to be declared."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG122": Explanation(
        what="The recipe calls an attribute `optional`, and a method that moves still asks for it by hasattr or "
        "getattr.",
        why="An optional attribute is declared in `__init__` first, and every test of it in the class is rewritten "
        "with that, also those in methods that stay. A cut moves methods and changes nothing else.",
        past="Run `migrate declare SLICE`, look at the few lines that it changes, and commit them as a pull request "
        "of their own. Then run this command again.",
    ),
    "MG123": Explanation(
        what="The recipe calls a method a `capability`, and it is not proved to be one: a method that only "
        "subclasses have, as a plain method. The message has the reason.",
        why="The isinstance test with a Protocol would answer otherwise than hasattr does: it asks the class where "
        "hasattr asks the object, and the object may have been given the attribute.",
        past="Take the attribute out of `[hasattr.attributes]`: the question is then put to the worker, as before. "
        "Where the message names what cannot be seen, and you know that nothing comes of it, name that under "
        "`[hasattr.accept]` with the reason.",
    ),
    "MG538": Explanation(
        what="With the attribute declared in `__init__`, something would behave otherwise. The message says what: who "
        "assigns None to it, who reads it without a test, who deletes it, who else asks for it, or why a test "
        "cannot be edited.",
        why="None, or a default, would have to stand for an attribute that is not there, and that one place could "
        "tell the two apart. The tests of an attribute are rewritten together, so none of them is.",
        past="Change that place in a commit of its own (read the attribute under a test, assign something else than "
        "None) and run again. Or leave the attribute as it is: a handler asks its worker for it, as before.",
        before="""\
class Worker:
    def __init__(self):
        self.name = "w"

    def count(self):
        if not hasattr(self, "seen"):
            self.seen = 0
        self.seen += 1

    def report(self):
        return self.seen
""",
        after="""\
class Worker:
    def __init__(self):
        self.name = "w"

    def count(self):
        if not hasattr(self, "seen"):
            self.seen = 0
        self.seen += 1

    def report(self):
        return self.seen if hasattr(self, "seen") else 0
""",
    ),
    "MG539": Explanation(
        what="All code that can be seen allows the declaration, but something stands there that may do what cannot be "
        "seen: a base class from elsewhere, names computed at run time, objects made without `__init__`.",
        why="A proof that leaves it out would be a guess.",
        past="If you know that nothing comes of it, name it as the message does, under `[hasattr.accept]` with the "
        "reason, or with --accept for a Python file. It is then written down who vouches for what.",
        before="""\
[hasattr.attributes]
seen = "optional"
""",
        after="""\
[hasattr.attributes]
seen = "optional"

[hasattr.accept]
"Worker.load sets attributes under a computed name" = "only names of the config, and seen is none"
""",
    ),
    "MG540": Explanation(
        what="`[hasattr.declare]` puts the declaration behind an attribute that `__init__` does not assign itself, or "
        "only after it has called something that gets the object.",
        why="What is called with the object may ask for the attribute, and would find it missing altogether.",
        past="Name an attribute that is assigned before that call, or leave the entry out: the declaration then stands "
        "behind the assignments that `__init__` opens with.",
    ),
    "MG541": Explanation(
        what="The class neither asks for such an attribute nor makes it in `__init__`; or nothing that stands against "
        "a declaration in it has the name that was accepted.",
        why="A name that is spelled wrong would be passed over in silence.",
        past="Take the name from `migrate inventory FILE --hasattr`. Line numbers in the name of an obstacle do not "
        "count.",
    ),
}
