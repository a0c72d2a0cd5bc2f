"""MG3xx: files, the working tree, writing and undoing."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG301": Explanation(
        what="The file is not valid Python for the interpreter that runs migrate.",
        why="What cannot be parsed cannot be moved soundly.",
        past="Mend the line named. If the file uses newer syntax than this interpreter knows, run migrate "
        "under the Python that the file is written for.",
    ),
    "MG302": Explanation(
        what="The bytes of the file are not what its coding line, or UTF-8, says; or they do not come back "
        "the same when they are decoded and encoded again (UTF-7 and its like).",
        why="Python could not read such a file, or what is not touched could not keep its bytes. Any other "
        "encoding is handled: the file keeps its own, the handler is UTF-8.",
        past="Correct the coding line, or convert the file to UTF-8 in a commit of its own, so that the move "
        "does not hide in it.",
        before="""\
migrate: MG302 app/worker.py:2: byte 0xe9 is not UTF-8; add a coding line, or save the file as UTF-8
""",
        after="""\
$ iconv -f latin1 -t utf-8 app/worker.py > app/worker.new && mv app/worker.new app/worker.py
$ git commit -m "UTF-8" app/worker.py
""",
    ),
    "MG303": Explanation(
        what="A file or folder that was named, on the command line or in the recipe, is not there.",
        why="Paths in a recipe are relative to the repository that --repo names (default: the current folder).",
        past="Run from the top of the repository, or give --repo.",
    ),
    "MG304": Explanation(
        what="git reports changes that are not committed: in any tracked file, or in a file that the command "
        "would write and git does not know.",
        why="Your edits and those of migrate would end up in one diff, and taking back the one by git would "
        "lose the other.",
        past="Commit or stash first. With --allow-dirty the command writes all the same; `migrate undo` gives "
        "back the bytes as they were, your edits included.",
    ),
    "MG305": Explanation(
        what="An earlier write was interrupted (a kill, a loss of power), and it cannot be finished now: "
        "either this is a dry run, which writes nothing, or a file was edited meanwhile.",
        why="Finishing would overwrite that edit; not finishing would leave a mixed tree.",
        past="After a dry run: `migrate undo --list` finishes the write. After an edit: the message says where "
        "the bytes of before lie; put them back (keep your edit elsewhere) and run again.",
    ),
    "MG306": Explanation(
        what="A file is no longer what it was when the change was planned, a moment ago.",
        why="Something else, an editor or a formatter, writes at the same time; its change would be lost.",
        past="Run the command again.",
    ),
    "MG307": Explanation(
        what="Another migrate is writing in the same repository.",
        why="Two of them at once could each undo half of the other's work.",
        past="Wait for it. The lock goes with the process that holds it: there is no file to remove.",
    ),
    "MG308": Explanation(
        what="A file of the write that is to be undone is no longer as that write left it.",
        why="Undo gives back the bytes of before the write; an edit made since would be lost. A file that has "
        "the bytes of before already is in nobody's way.",
        past="Keep a copy of the edited file. Put back what the write left (git has it if it was committed) "
        "or what was before the write (the message names the file that holds it), run `migrate undo`, and "
        "make the edit again. To keep everything as it is and give this undo up, delete the record's "
        "folder; the write before it is then the next.",
        before="""\
$ migrate undo
migrate: nothing was undone, files changed since 0004 port --cut kv, 2026-03-01 09:30:00 UTC
  MG308 app/worker.py: its content is no longer what was written; before the write: .migrate/undo/0004/1
""",
        after="""\
$ cp app/worker.py edited.py
$ cp .migrate/undo/0004/1 app/worker.py
$ migrate undo
""",
    ),
    "MG309": Explanation(
        what="The system refused a step in the middle of a write (no space, no permission), and refused to "
        "take the steps before it back as well.",
        why="Some files may be new and some old at this moment. All that is needed to go on, either way, "
        "lies in `.migrate/undo/journal`.",
        past="Mend the cause that the message names, then run `migrate undo --list`: it finishes the write, "
        "or goes back where that is refused again.",
    ),
    "MG310": Explanation(
        what="A record under `.migrate/undo` cannot be read, or its old bytes are not those that it promises.",
        why="Undo is exact or it is refused.",
        past="Take the files of before from git. Then delete the record's folder; the writes before it can be "
        "undone if their files are as they left them.",
    ),
    "MG311": Explanation(
        what="There is a repository, and git fails in it: it belongs to another user, or is damaged.",
        why="It is then unknown whether a write would cover work that is not committed.",
        past="Mend what git complains of (`git status` shows it). --allow-dirty writes without asking git.",
        before="""\
migrate: MG311 fatal: detected dubious ownership in repository at '/app'
""",
        after="""\
$ git config --global --add safe.directory /app
""",
    ),
    "MG312": Explanation(
        what="Two of the paths that would be written are the same file, one of them through a link.",
        why="Only one of the two contents could stay.",
        past="Use one of the two names, or replace the link by a file.",
    ),
    "MG313": Explanation(
        what="A path leads out of the repository that --repo names, by `..` or through a link.",
        why="Neither git nor undo watches over what is outside.",
        past="Give --repo the folder that holds all files of the slice.",
    ),
    "MG316": Explanation(
        what="The line has a construct of a newer Python than the one that runs migrate: a `type` statement, "
        "type parameters, quotes inside the fields of an f-string, a t-string, `except A, B` and the like.",
        why="The interpreter's own parser is the judge of what moved code means; it must know the syntax.",
        past="Run migrate under the Python that the message names, or a later one.",
        before="""\
migrate: MG316 app/worker.py:3: invalid syntax: the `type` statement needs Python 3.12, this is 3.11
""",
        after="""\
$ python3.12 -m pip install batchgen-migrate
""",
    ),
    "MG317": Explanation(
        what="A statement nests thousands of levels deep: a sum, an `elif` chain or a chain of calls that a "
        "program has written, or brackets beyond the 200 that Python allows.",
        why="Python itself gives up on such code, or is close to it.",
        past="Split the statement: build a list and join it, or look the branches up in a table.",
    ),
}
