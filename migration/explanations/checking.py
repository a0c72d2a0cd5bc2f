"""MG6xx: what `migrate check` finds."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG601": Explanation(
        what="An item of the checklist has found no place to judge: the name that it is about occurs "
        "nowhere.",
        why="A check that compared nothing is no success. A misspelt name would tick its line for ever.",
        past="Compare the names in the item with the code. Where the thing is really gone, so is the item: "
        "delete it, or give it the `phases` in which it has something to look at.",
    ),
    "MG602": Explanation(
        what="A waiver of the recipe let a finding pass until a date, and the date is over.",
        why="A waiver is a debt with a date. One that nobody has to look at again is a hole in the "
        "checklist.",
        past="Mend the finding and delete the waiver; or, if the reason still holds, set another date in "
        "the same pull request that explains it.",
    ),
    "MG603": Explanation(
        what="A waiver names a rule and a place, and no finding of that rule is there.",
        why="It would let the next finding at that place pass before anybody has seen it.",
        past="Delete the waiver where the finding was mended. Otherwise compare its `rule` and `place` "
        "with what the check prints without it; `phases` limits one to the phases in which the "
        "finding exists.",
    ),
    "MG604": Explanation(
        what="The handler module of the slice is not there, or its class has no methods.",
        why="A checklist that is ticked because there was nothing to look at says nothing.",
        past="Run `migrate port` first. Where the handler is there under another name, correct `[target]` "
        "in the recipe.",
    ),
    "MG610": Explanation(
        what="The handler mentions what its checklist forbids: by the expression itself, through a local "
        "name, a getter, `getattr()` or `vars()`.",
        why="The object behind it is replaced while the worker runs, or belongs to another part. A "
        "handler that goes around its handle works until the day on which the two are not the same.",
        past="Use the handle that the recipe injects for it. Where the reference comes from the class, "
        "declare a rewrite or an expression of the handle and port again.",
    ),
    "MG611": Explanation(
        what="The handler reads configuration from the worker and not from the frozen snapshot that it was "
        "given.",
        why="A plan that depends on live state cannot be computed again from its request, and two reads "
        "of one value may differ.",
        past="Name the field under `[snapshot]` and port again. The finding carries the edit where the "
        "field is there already.",
    ),
    "MG612": Explanation(
        what="A value that the checklist wants computed from the snapshot is read from an instance, or "
        "computed from something else.",
        why="What an instance holds was computed at another moment. The handler would decide by a number "
        "that no request shows.",
        past="Compute it where it is needed, from fields of the snapshot; a local variable or a function "
        "of that name is what the check looks for.",
    ),
    "MG613": Explanation(
        what="The handler mentions state whose life cycle stays on the worker.",
        why="Two owners of one list free it twice, or not at all.",
        past="Let the method return what the worker needs to do it itself, or list the method under `stays`.",
    ),
    "MG614": Explanation(
        what="An attribute of the handler is written outside `__init__`, is changed in place, or is made "
        "in `__init__` from something else than a handle.",
        why="A handler is made anew for each call and for each worker. What it remembers is lost there, "
        "and shared where somebody keeps it.",
        past="Write it through a handle, so that it lives on the worker, or return it to whoever called.",
    ),
    "MG615": Explanation(
        what="A name that the handler uses is not imported there, is imported for type checkers only, or "
        "is imported from where it is not.",
        why="The first call that gets there fails with a NameError, perhaps an hour into a run.",
        past="Import it as the class's module does; the finding carries the line where that one is known.",
    ),
    "MG616": Explanation(
        what="A name in the handler's module is bound nowhere.",
        why="It fails when it is first used, and not when the module is imported.",
        past="Import it, or correct its spelling. A name of the class's own module is imported at the "
        "start of the method, as a port does it.",
    ),
    "MG617": Explanation(
        what="The handler asks whether an attribute is there, by `hasattr`, `getattr` with a default or "
        "`in vars()`.",
        why="A handle has the member by its Protocol, whether the object behind it is ready or not. The "
        "question is answered by the wrong object, and the code behind it never runs, or always.",
        past="Give the Protocol a member that answers, and declare a rewrite from the question to it; the "
        "finding carries the edit where the recipe has one.",
    ),
    "MG618": Explanation(
        what="Code asks whether a handle is None, or reads a member of it with a default.",
        why="An adapter that lost a member would be passed over in silence, and a method that does "
        "nothing looks like one that had nothing to do.",
        past="Take the question out. Where the object may really be absent, let the Protocol have a member "
        "that says so, or name the handle in an item of the checklist: rule `optional-handle`, `optional`. Then "
        "it may be compared with None, and what it has is still not asked for.",
    ),
    "MG619": Explanation(
        what="The handler calls a method that the checklist routes through a handle, on the worker or on "
        "itself.",
        why="That part has moved, or will move: the call would miss what was moved, or keep a delegate "
        "alive.",
        past="Declare a rewrite in the recipe and port again, or make the edit that the finding carries.",
    ),
    "MG620": Explanation(
        what="After a call that makes the worker's object anew the attribute is not assigned on some way "
        "to the end of the function.",
        why="The worker goes on with the object from before, on the ways that tests seldom take: an early "
        "return, a loop that did not run.",
        past="Assign it directly behind the call, before anything that can return.",
    ),
    "MG621": Explanation(
        what="The parameters of the handler's constructor are not those that the recipe gives.",
        why="The constructor is the contract of the slice: what is not in it cannot be replaced in a "
        "test, and what is too much hides a dependency.",
        past="Change the recipe and port again, or take the parameter out.",
    ),
    "MG622": Explanation(
        what="A member is called on, or written to, the primary object, and not to the auxiliary one: "
        "neither in the method nor in those of the handler that it calls.",
        why="With one of the two pools stale nothing crashes. Attention selects by stale keys, and the "
        "text is wrong.",
        past="Add the other call. Where only one of them has the member, list those that come in pairs "
        "under `members`.",
    ),
    "MG623": Explanation(
        what="There is a way through the function on which the second call runs and the first has not.",
        why="Pages freed while a copy is in flight, a report before the release that it needs: what goes "
        "wrong shows much later, and elsewhere.",
        past="Move the first call in front of the branch, or into both branches.",
    ),
    "MG624": Explanation(
        what="The handler assigns an attribute for which there is a method that also keeps an index, or "
        "checks the transition.",
        why="The index then answers with the old set, and nobody sees an error.",
        past="Call the method that the finding names.",
    ),
    "MG625": Explanation(
        what="There is a way out of a function on which the one call has been made and the other has not.",
        why="A load that nobody waits for, a context that nobody releases: pages stay taken, or memory does.",
        past="Make the call on every way out, best in a `finally` clause.",
    ),
    "MG626": Explanation(
        what="An attribute of the worker gets an object in more than one function of the class and the "
        "handler.",
        why="Two owners each make their own: a communicator was set up twice, and the second one hung.",
        past="Keep one function that makes it, and call that.",
    ),
    "MG627": Explanation(
        what="A method that the checklist wants called from one place is called from several.",
        why="Two pollers at once admit one request twice, and the second finds it in a state that it must "
        "not be in.",
        past="Find out which of the callers is the old one, and take the call out of it.",
    ),
    "MG628": Explanation(
        what="A division that rounds up is written out, where there is a helper for it.",
        why="Two formulas for one quantity agree until one is changed: a scheduler reserved fewer pages "
        "than the allocator took.",
        past="Call the helper, also where the expression is short.",
    ),
    "MG630": Explanation(
        what="The files of the slice have more added lines since the base revision than a pull request of "
        "this phase may have.",
        why="Nobody reviews two thousand lines. The budget was set so that somebody does.",
        past="Let `migrate port` write it in parts, or move what does not belong into a pull request of "
        "its own. `--base` names another revision to count from.",
    ),
    "MG631": Explanation(
        what="A gate is there before it may be, is missing or is more than a switch while there has to be "
        "one, or has left something behind after the clean-up.",
        why="A gate that does more than route changes what it is there to compare. A flag that is read by "
        "nobody is set by somebody who relies on it.",
        past="Run `migrate gate` or `migrate cleanup`, or take the edit of the gate back. Other mentions "
        "of the flag are deleted by hand.",
    ),
    "MG632": Explanation(
        what="A method of the handler is not what a port of the class would write now; after the clean-up: "
        "the files are not those of the proof.",
        why="One of the two was edited alone. Which one serves depends on a flag, and the clean-up would "
        "lose the edit of the class without a word.",
        past="Where the class was edited, apply the patch that the finding carries. Where the handler was, "
        "make the same edit in the class. After the clean-up, take the edit into a pull request of "
        "its own.",
    ),
    "MG633": Explanation(
        what="A gate or a delegate has other parameters than the method behind it, or does not pass one of "
        "them on as it came.",
        why="A parameter that an adapter drops is read as its default: nothing fails, and every request "
        "gets the same setting.",
        past="Take the signature of the method; the finding carries the edit for a gate.",
    ),
    "MG634": Explanation(
        what="The constructor takes a handle, and no method of the handler uses it.",
        why="It says that the handler needs what it does not, and every test has to fake it.",
        past="Take it out. A port writes only the handles that its methods use.",
    ),
    "MG635": Explanation(
        what="A method of the handler is called by nobody but tests.",
        why="The tests keep it green while the worker does something else.",
        past="Find out what calls the work it does now. Either that caller should use it, or the method "
        "goes.",
    ),
    "MG636": Explanation(
        what="The gate of the slice has no `[checklist.flag]`, or is older than its `max_age_days`.",
        why="Two paths cost twice as much to change. A gate without a date stays for years.",
        past="Finish the slice with `migrate cleanup`. Where it has to stay, its owner sets another "
        "`max_age_days` and says why.",
    ),
    "MG637": Explanation(
        what="A moved body has lost a keyword argument, an except or finally clause or an assertion of the "
        "original, or has come to one that the original did not have.",
        why="That is what moves by hand lose: an error that is now swallowed, a cleanup that no longer "
        "runs, a parameter that falls back to its default.",
        past="Restore it, or port the method again. What is meant to change is changed in a pull request "
        "of its own.",
    ),
    "MG638": Explanation(
        what="Under a condition that may differ between ranks one way makes other collectives than the "
        "other. An early return, a loop over local data and a variable of the environment count.",
        why="The ranks that make it wait for those that do not: every rank hangs, with no error.",
        past="Make the collective on both ways, or decide by a value that all ranks have agreed on. What "
        "is agreed although it does not look so is named under `agreed` in an item of the rule "
        "`collectives`.",
    ),
    "MG639": Explanation(
        what="The handler uses a private attribute of an object that it reaches through a handle.",
        why="The next kind of pool or manager does not have it. The real one failed so in its teardown, "
        "after hours.",
        past="Add a public member to the class and to the Protocol, and use that.",
    ),
    "MG640": Explanation(
        what="Importing the handler's module imports the module of the class, which imports the handler.",
        why="Whether such a circle works depends on who is imported first.",
        past="Import it inside the method, as a port does, or move what both need into a module that "
        "imports neither.",
    ),
    "MG641": Explanation(
        what="Beside a module of the slice there is a package with its name, or a module with the name of "
        "its package.",
        why="Python imports one of the two, and never the other.",
        past="Rename or remove one. An empty folder that git does not know is enough to delete.",
    ),
    "MG642": Explanation(
        what="The handler has two definitions of one name.",
        why="The last one wins. Whoever reads, or moves, the first one looks at dead code.",
        past="Delete the one that does not count, after comparing the two.",
    ),
    "MG643": Explanation(
        what="An except clause only raises again, or catches everything and goes on.",
        why="Where drift shows first is an exception, and there it ends in a log that nobody reads.",
        past="Delete the clause, or catch what is expected by its type. A place where going on is meant is "
        "waived with its reason.",
    ),
    "MG644": Explanation(
        what="Whoever makes the handler, or an adapter, reads an attribute of the worker once and keeps "
        "it, and a method of the worker binds that attribute anew.",
        why="The pool is recreated when it grows. Whoever kept the old one works on freed pages, or on None.",
        past="Hand over `lambda: worker.attribute`, or the worker itself; the recipe's `expressions` do "
        "that.",
    ),
    "MG645": Explanation(
        what="The handler reads an attribute of the worker that neither the class nor the handler nor any "
        "other file of the project ever makes.",
        why="After a rename on one side reading fails at the first use, and behind a default it never does.",
        past="Compare the spelling with that of the class. What is set by a computed name needs a waiver.",
    ),
    "MG646": Explanation(
        what="A class that stands in front of a handle lacks a member of the Protocol, or a method of it "
        "ignores one of its parameters.",
        why="A parameter that is dropped is read as its default, and nothing fails: all requests were "
        "sampled alike.",
        past="Forward the parameter, or take it out of the Protocol. A generated adapter does both; see "
        "docs/protocols.md.",
    ),
}
