"""What `migrate` refuses and what can go wrong: one catalogue of codes, each with a way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Code:
    """One entry of the catalogue: what is wrong in general, and how to get past it."""

    title: str
    way_out: str


#: MG0xx a method that cannot move, MG1xx the slice or its target, MG2xx verification, MG3xx files,
#: MG4xx the recipe, MG5xx splitting, types, adapters, planning, MG6xx the checklist of a slice.
CATALOGUE: Final[dict[str, Code]] = {
    "MG001": Code(
        "uses __class__, or super() in a nested scope",
        "call `super(Class, self)`, or list the method in `stays`",
    ),
    "MG002": Code("uses a name that Python mangles", "rename it with one underscore in its own commit first"),
    "MG003": Code(
        "writes module globals", "turn the global into an attribute, or list the method in `stays`"
    ),
    "MG006": Code("has a decorator that reads its source", "list the method in `stays`"),
    "MG007": Code("is defined more than once", "delete the shadowed definition in its own commit first"),
    "MG009": Code("is a finalizer", "list it in `stays`"),
    "MG010": Code("has no plain self parameter", "give it an ordinary first parameter that is never rebound"),
    "MG011": Code(
        "depends on the frame or namespace it runs in", "pass the values explicitly, or list it in `stays`"
    ),
    "MG012": Code("prints its own source with an f-string `=`", 'write the label out: f"self.x={self.x}"'),
    "MG013": Code(
        "evaluates a name of the worker at definition time", "default to None and resolve it in the body"
    ),
    "MG014": Code(
        "uses a module global that functions rebind", "rename the local variable, or list it in `stays`"
    ),
    "MG015": Code("imports relatively over several lines", "write `from .x import (` on one line"),
    "MG018": Code(
        "cannot be edited at exact positions", "put the expression on lines of its own, outside the string"
    ),
    "MG019": Code(
        "clashes with a name that the handler needs", "rename it in the worker, or the handle in the recipe"
    ),
    "MG020": Code("has a default that cannot be left to the stub", "write the default on one line"),
    "MG021": Code(
        "uses a module global that may be unbound", "bind it on every path, or rename the local variable"
    ),
    "MG022": Code(
        "asks with hasattr() what is not proved",
        "take the attribute out of `[hasattr]`, or set it in `__init__`",
    ),
    "MG101": Code("section not found", "compare the banner with `migrate inventory FILE`"),
    "MG102": Code("class not found", "correct `class` in the recipe"),
    "MG103": Code("target is taken", "choose another target module, or undo the earlier port first"),
    "MG104": Code("target module is shadowed by a package", "remove the package or choose another module"),
    "MG105": Code("import cycle through the handler", "move what the worker shares into a module of its own"),
    "MG106": Code("name already bound in the worker module", "choose another handler class name"),
    "MG107": Code(
        "is replaced elsewhere, and moved code calls it", "list it under `late_bound` in the recipe"
    ),
    "MG108": Code("section is partly ported", "finish or undo the earlier port first"),
    "MG109": Code(
        "is not the method that the recipe was planned on",
        "look at the change, then `migrate replay` or plan again; without `[planned]` nothing is compared",
    ),
    "MG110": Code("no proof file", "name a slice that was cut here, or the path of its proof file"),
    "MG111": Code("cannot be folded back", "undo the edits that are in the way, or fold by hand"),
    "MG112": Code("handler module holds more than the slice", "move the additions elsewhere first"),
    "MG113": Code("legacy method and handler differ", "port the slice again, or edit both alike"),
    "MG114": Code("phases are out of order", "port first, then gate, then cleanup"),
    "MG115": Code("method is over the budget", "split it with `migrate split`, or raise `port.budget`"),
    "MG116": Code("method cannot be gated", "cut it in one step, or list it in `stays`"),
    "MG117": Code("is not in the Protocol that the recipe gives", "add the member, or declare a rewrite"),
    "MG118": Code(
        "does not fit the Protocol that the recipe gives", "correct the signature in it, or rewrite the call"
    ),
    "MG131": Code("nobody answers", "run --interactive in a terminal, or name the methods in the recipe"),
    "MG119": Code(
        "snapshot field may change", "take it out of `snapshot.fields`: it is then read at each use"
    ),
    "MG120": Code(
        "snapshot field may not be there yet",
        "set it first thing in `__init__`, or take it out of the snapshot",
    ),
    "MG121": Code("changes a snapshot", "take the field out of the snapshot, or list the method in `stays`"),
    "MG122": Code(
        "asks with hasattr() for what the recipe declares",
        "run `migrate declare SLICE` and commit it, then run this again",
    ),
    "MG123": Code(
        "asks with hasattr() for what is no capability",
        "take the attribute out of `[hasattr.attributes]`, or accept what is named in `[hasattr.accept]`",
    ),
    "MG124": Code("route does not answer like the handler", "give it the method as the handler has it"),
    "MG125": Code(
        "base class does not fit the handler", "rename what is named in it, or only annotate it there"
    ),
    "MG126": Code("file written by hand is missing", "write it, or take it out of `[human]`"),
    "MG201": Code("result does not compile", "report it: the cut must never produce this"),
    "MG202": Code("moved body differs from the original", "list the method in `stays` and report it"),
    "MG203": Code(
        "a name became undefined or unused", "import it in the worker explicitly, or list it in `stays`"
    ),
    "MG204": Code("comments were lost or duplicated", "list the method in `stays` and report it"),
    "MG205": Code("bytes outside the cut changed", "report it: the cut must never produce this"),
    "MG206": Code("a stub changed its signature", "list the method in `stays` and report it"),
    "MG207": Code("a second run would change something", "report it: the cut must never produce this"),
    "MG208": Code("tree is not what was proved", "cut again, or take the edits back"),
    "MG301": Code(
        "file does not parse", "fix the syntax error first, or run under the Python it is written for"
    ),
    "MG302": Code("encoding that cannot be read and written back exactly", "save the file as UTF-8"),
    "MG303": Code("file not found", "check --root and the recipe"),
    "MG304": Code("working tree has uncommitted changes", "commit them, or pass --allow-dirty"),
    "MG305": Code("an interrupted write cannot be finished", "restore the named file, then run again"),
    "MG306": Code("file changed while the cut was planned", "run again"),
    "MG307": Code("another migrate is writing here", "wait for it to finish"),
    "MG308": Code(
        "file changed since the write that is to be undone",
        "put those edits aside and run again, or delete the undo record to keep them",
    ),
    "MG309": Code(
        "a write is neither done nor undone",
        "free the named file or disk, then run `migrate undo --list`: it finishes the write",
    ),
    "MG310": Code("undo record is damaged", "take the older files from git, and delete the record's folder"),
    "MG311": Code("git cannot say what is committed", "repair what git reports, or pass --allow-dirty"),
    "MG312": Code("two of the files are one file", "replace the link by a file, or use one of the two names"),
    "MG313": Code("file is not in the repository", "give --repo the folder that holds it"),
    "MG316": Code("syntax of a newer Python", "run migrate under the Python that the file is written for"),
    "MG317": Code("nests too deeply to follow", "split the statement in its own commit first"),
    "MG401": Code("recipe is wrong", "correct the named entry"),
    "MG402": Code("no such slice", "name one of migration/slices, or give the path of a .toml file"),
    "MG501": Code(
        "no such method to split", "name one that `migrate inventory FILE` lists, with its --class"
    ),
    "MG502": Code("more than one definition is over the budget", "rename or delete one of them first"),
    "MG503": Code("has no self or cls to call a helper on", "make it a method or a class method first"),
    "MG504": Code(
        "a call sees all local names", "pass the values explicitly instead of locals(), eval() or exec()"
    ),
    "MG505": Code("has a decorator that compiles its source", "move the code into functions by hand"),
    "MG506": Code("binds self again", "give the new object another name"),
    "MG507": Code("belongs to a class to which a helper matters", "split it in a class of the usual kind"),
    "MG508": Code(
        "cannot be brought within the budget",
        "clear the obstacles named, take a larger --budget or --cap, or list the method as an exception",
    ),
    "MG509": Code("a jump leads out of the block", "let the block compute a value and jump outside of it"),
    "MG510": Code("the block yields", "move what stands between two yields into a method by hand"),
    "MG511": Code("a local may be unbound at the cut", "bind it on every path, to None if need be"),
    "MG512": Code(
        "an object would live longer or shorter", "hold it by `with`, or in a local of another name"
    ),
    "MG513": Code(
        "a nested function sees the local change", "hand it the value: a default argument, or a parameter"
    ),
    "MG514": Code(
        "a local is needed although the block raised",
        "bind it in front of the try, or pass --propagates NAME for a context manager that swallows nothing",
    ),
    "MG515": Code("too many names cross the cut", "raise --cap, or keep what belongs together in one object"),
    "MG516": Code("a statement shares its line with another", "put each statement on lines of its own"),
    "MG517": Code("the block writes a module global", "turn the global into an attribute first"),
    "MG518": Code("a local would lose its value or its use", "delete what is never used or never reached"),
    "MG519": Code("the block counts stack frames", "leave it where it is, or pass what it looks up"),
    "MG520": Code(
        "is taken from the class, for objects that may lack the helpers",
        "call it on an instance of the class",
    ),
    "MG521": Code("types file is wrong", "write it anew with `migrate trace`"),
    "MG522": Code("command cannot be run", "check its name, or give its path"),
    "MG523": Code("no instance was seen", "run something that uses the class, and name it as it is imported"),
    "MG524": Code("class is not in the types file", "name it with --class when tracing"),
    "MG525": Code(
        "parameter cannot be reached through the Protocol",
        "add it to the Protocol's member, or map one to it",
    ),
    "MG526": Code("adapter does not fit", "correct the mapping, or the member of the Protocol"),
    "MG527": Code(
        "Protocol cannot be read", "name Protocols and types that can be imported from their module"
    ),
    "MG528": Code("wrapped method cannot be forwarded", "write this method of the adapter by hand"),
    "MG529": Code("name in the generated module is taken", "rename the Protocol, or the class that it names"),
    "MG531": Code("file cannot be imported by its path", "give --repo the folder that imports start from"),
    "MG533": Code("no such slice to pick", "pick a number of the table"),
    "MG534": Code("recipe is there already", "choose another path, or pass --force"),
    "MG535": Code("no such method to plan", "name methods that the class itself defines"),
    "MG536": Code("is longer than a slice may be", "split it first, or raise --budget"),
    "MG537": Code("not the name of a recipe", "let it end in .toml"),
    "MG538": Code(
        "cannot be declared", "change what is named, in a commit of its own, or leave the attribute as it is"
    ),
    "MG539": Code(
        "cannot be declared for certain",
        "name the obstacle under `[hasattr.accept]` with the reason why nothing comes of it, or pass --accept",
    ),
    "MG540": Code(
        "cannot be declared there", "name an attribute that is assigned earlier, or let the place be chosen"
    ),
    "MG541": Code(
        "nothing of that name to declare", "take a name that `migrate inventory FILE --hasattr` lists"
    ),
    "MG601": Code(
        "check looked at nothing",
        "correct the data of the item, or take it out of the checklist",
    ),
    "MG602": Code(
        "waiver has expired",
        "mend what it let pass, or set a new date with the reason why",
    ),
    "MG603": Code(
        "waiver matches nothing",
        "delete it, or correct its rule and place",
    ),
    "MG604": Code(
        "nothing to check",
        "port the slice first",
    ),
    "MG610": Code(
        "forbidden reference",
        "reach it through the injected handle",
    ),
    "MG611": Code(
        "configuration is read from the live worker",
        "make it a field of the snapshot",
    ),
    "MG612": Code(
        "is not computed from the snapshot",
        "compute it from fields of the snapshot",
    ),
    "MG613": Code(
        "the worker's own state is touched",
        "leave it to the worker, before or after the call",
    ),
    "MG614": Code(
        "handler has state",
        "keep it on the worker, or return it",
    ),
    "MG615": Code(
        "import is not resolved",
        "import it in the handler's module",
    ),
    "MG616": Code(
        "name is not defined",
        "import it, or spell it as it is defined",
    ),
    "MG617": Code(
        "asks with hasattr for what a Protocol promises",
        "use the handle; its Protocol says what is there",
    ),
    "MG618": Code(
        "handle is treated as if it might be missing",
        "use it; who injects it sees to it that it is there",
    ),
    "MG619": Code(
        "call goes past its handle",
        "call it through the handle",
    ),
    "MG620": Code(
        "is not handed back on every way",
        "assign it after the call, on each way out",
    ),
    "MG621": Code(
        "constructor is not the recipe's",
        "take the handles of the recipe, keyword-only and in its order",
    ),
    "MG622": Code(
        "primary without its auxiliary",
        "do to the auxiliary object what is done to the primary",
    ),
    "MG623": Code(
        "order of two calls is not kept",
        "make the first call on every way to the second",
    ),
    "MG624": Code(
        "attribute is assigned past its method",
        "call the method that keeps the index",
    ),
    "MG625": Code("call has nothing behind it", "make the other call on every way out"),
    "MG626": Code(
        "object is made in more than one place", "let one function make it, and the others ask for it"
    ),
    "MG627": Code("effect has more than one caller", "let one of them call it"),
    "MG628": Code("formula is written out", "call the helper"),
    "MG630": Code(
        "change is over the budget of its phase",
        "split it, or raise the budget in the recipe",
    ),
    "MG631": Code(
        "gate does not fit the phase",
        "run the phase that is missing, or finish it",
    ),
    "MG632": Code(
        "legacy body and port have drifted apart",
        "carry the edit over to the other side",
    ),
    "MG633": Code(
        "signature is not the method's",
        "take the same parameters, and pass each on",
    ),
    "MG634": Code(
        "handle is injected and unused",
        "take it out of the recipe and the constructor",
    ),
    "MG635": Code(
        "method has no production caller",
        "call it, or delete it",
    ),
    "MG636": Code(
        "flag has no owner, or is overdue",
        "name an owner and a date, or finish the slice",
    ),
    "MG637": Code(
        "clause or keyword of the original is lost",
        "restore it as the original has it",
    ),
    "MG638": Code(
        "collective depends on what differs between ranks",
        "let every rank make it, or decide collectively",
    ),
    "MG639": Code(
        "private attribute of a collaborator",
        "give its Protocol a public member",
    ),
    "MG640": Code(
        "handler imports the worker",
        "move what both need into a module of its own",
    ),
    "MG641": Code(
        "module and package have the same name",
        "rename one of them",
    ),
    "MG642": Code(
        "method is defined twice",
        "delete the first definition",
    ),
    "MG643": Code(
        "exception is caught for nothing",
        "let it pass, or do something about it",
    ),
    "MG644": Code(
        "handle keeps what is bound anew later",
        "hand over a function that reads it",
    ),
    "MG645": Code(
        "attribute is made nowhere",
        "spell it as the worker does",
    ),
    "MG646": Code(
        "adapter does less than its Protocol promises", "forward every parameter, and have every member"
    ),
}


@dataclass(frozen=True)
class Refusal:
    """One reason why nothing was written; `where` names the method or file, `line` is 1-based, 0 if none."""

    code: str
    where: str
    line: int
    message: str

    @property
    def way_out(self) -> str:
        return CATALOGUE[self.code].way_out


class MigrationError(Exception):
    """The run cannot go on (missing file, wrong recipe, dirty tree); carries a code of the catalogue."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.way_out = CATALOGUE[code].way_out
