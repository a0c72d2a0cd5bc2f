"""MG531-MG537: planning slices of a class."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG531": Explanation(
        what="The path of the file is not the name of a module: a part of it is no Python name, or the "
        "repository given is itself inside a package.",
        why="The stubs import the handler by its module name, and the handler imports the class's module by its "
        "own. A name that is made up would only fail when the code runs.",
        past="Give --repo the folder that the imports of the project start from, or one above it. A file that "
        "no other can import has to be renamed first.",
        before="""\
$ migrate plan worker.py
migrate: MG531 /home/me/project/app is inside a package, whose imports start above it
""",
        after="""\
$ migrate plan app/worker.py --repo /home/me/project
""",
    ),
    "MG533": Explanation(
        what="--pick names a slice that the plan does not have.",
        why="There is nothing to save.",
        past="Run without --write, and pick one of the numbers in the table.",
    ),
    "MG534": Explanation(
        what="There is a file of that name already.",
        why="A recipe is edited by hand after it was planned; writing it again would undo that.",
        past="Choose another path, or pass --force to overwrite it.",
    ),
    "MG535": Explanation(
        what="The class does not define a method of that name itself.",
        why="A method of a base class is not moved by moving it out of this one.",
        past="Correct the name, or plan the class that defines it: --class.",
    ),
    "MG536": Explanation(
        what="The method alone has more lines than a slice may have.",
        why="A slice is what one reviewer reads at once. A longer method can be moved as it is, with a larger "
        "budget; it is then a long method somewhere else.",
        past="Run the `migrate split` that the plan prints, review that, and plan again. Or raise --budget.",
    ),
    "MG537": Explanation(
        what="The path given to --write does not end in `.toml`.",
        why="Other commands tell a recipe file from the name of a slice by that ending.",
        past="Give the file a name that ends in `.toml`.",
    ),
}
