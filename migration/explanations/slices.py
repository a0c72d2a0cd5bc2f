"""MG1xx, MG4xx: the slice, its target and its recipe."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG101": Explanation(
        what="The class has no banner comment with the title of the recipe's `section`, or has several.",
        why="A section is all methods between its banner and the next one. Taking a similar title instead "
        "could move other methods than the reviewer thinks.",
        past="Compare with the sections of `migrate inventory FILE`; titles are compared whole, spaces aside. "
        "Or list the methods in the recipe.",
        before="""\
[source]
section = "KV Cache Helpers"
""",
        after="""\
[source]
section = "KV Cache Helper Methods"      # as in `# ===== KV Cache Helper Methods =====`
""",
    ),
    "MG102": Explanation(
        what="The file has no class of that name at module level, or has two.",
        why="Everything else is looked up in that class.",
        past="Correct `class` in the recipe, or --class; the message lists the classes of the file.",
    ),
    "MG103": Explanation(
        what="The file that the slice would create exists already.",
        why="Writing it would replace what somebody wrote there.",
        past="Choose another `file` under `[target]`. If it comes from an earlier port of this slice, finish "
        "that one or take it back: `migrate undo`.",
    ),
    "MG104": Explanation(
        what="There is a folder with the name of the new module (`parts/` beside `parts.py`), or a module with "
        "the name of a folder above it.",
        why="Python imports the package and never the module of the same name, so the stubs would import "
        "something else, or nothing.",
        past="Choose another `file` under `[target]`. A folder that is empty, or holds only `__pycache__`, "
        "can be removed.",
    ),
    "MG105": Explanation(
        what="The handler module would import a module that imports the worker again; the message shows the "
        "chain.",
        why="Whether such a circle works depends on who is imported first. It works in the tests and fails in "
        "production, or the other way round.",
        past="Move what both sides need into a module that imports neither. Where the import is only for "
        "annotations, `if TYPE_CHECKING:` ends the circle.",
    ),
    "MG106": Explanation(
        what="The worker module has something with the name of the handler class, of the gate or of what the "
        "gate imports (`Gate`, `Isolated`) already. The same import at its top level is no clash.",
        why="The stubs and gates call it by that name; one of the two would hide the other.",
        past="Choose another `class` under `[target]`, another `name` for the slice, or rename what the module "
        "has.",
    ),
    "MG107": Explanation(
        what="Another file replaces the method: a subclass overrides it, or a test patches it; and moved code "
        "calls it.",
        why="A call from one moved method to another stays within the handler and would miss the replacement.",
        past="List the method under `late_bound`: moved code then calls it through the worker, where the "
        "replacement is.",
        before="""\
[target]
late_bound = []
""",
        after="""\
[target]
late_bound = ["_get_free_pages"]
""",
    ),
    "MG108": Explanation(
        what="Some methods of the slice are stubs of this tool and some are not, or the stubs are there and "
        "the handler module is missing; or a method is behind the gate of another slice.",
        why="The recipe describes one state or the other. In between it is not clear which copy of a method "
        "counts.",
        past="Take the earlier port back (`migrate undo`, or git), or bring the missing file back. A method "
        "that was added to the section later needs a recipe of its own; one that another slice has is taken "
        "out of `methods`.",
    ),
    "MG109": Explanation(
        what="The recipe carries the hashes of the bodies that it was planned on, and a method differs from "
        "its hash, has come under the banner or has left it.",
        why="The slice was chosen, and perhaps reviewed, for other code than is there now.",
        past="Look at what changed, then let `migrate replay` carry the recipe over, or plan anew. To compare "
        "nothing, delete the table `[planned.bodies]`.",
        before="""\
[planned.bodies]
poll = "0f3c6a1e"      # shortened here; the worker's poll() has been edited since
""",
        after="""\
[planned.bodies]
poll = "97d1b2c4"      # looked at again
""",
    ),
    "MG110": Explanation(
        what="There is no proof file for the slice under `.migrate/`, or it was not written by this version of "
        "migrate.",
        why="Without it nothing says which original the tree has to be checked against, and a check of nothing "
        "is no success.",
        past="Name a slice whose proof is there (the message lists them), or the path of the file. A proof is "
        "written with each port, gate, cleanup and cut, and belongs into the same commit.",
    ),
    "MG111": Explanation(
        what="The slice cannot be put back into its class: an edit made since stands in the way, or the class "
        "as it would be could not be cut into what is there now.",
        why="Folding back is the exact inverse of the cut. Where it would not be, an edit would be lost.",
        past="Take those edits out of the handler or the class, fold, and make them again in the class; or fold "
        "by hand.",
    ),
    "MG112": Explanation(
        what="The handler module has classes, functions or methods that the slice did not put there.",
        why="Folding back deletes the module, and they have no place in the class.",
        past="Move them into a module of their own first.",
    ),
    "MG113": Explanation(
        what="A method of the handler is not what a port of the class would write now: one of the two was "
        "edited since.",
        why="The two are meant to do the same. After cleanup only the handler's is left, and an edit of the "
        "legacy one would be lost without a word.",
        past="Where the class was edited: delete the handler module and port again. Where the handler was: "
        "make the same edit in the class, port again, and let the comparison show that both agree.",
    ),
    "MG114": Explanation(
        what="The phase before this one has not been done, or the slice was cut in one step and has no phases "
        "left.",
        why="Port copies, gate routes, cleanup deletes: each relies on what the one before it wrote.",
        past="Run them in this order.",
        before="""\
$ migrate cleanup kv
""",
        after="""\
$ migrate port kv
$ migrate gate kv
$ migrate cleanup kv
""",
    ),
    "MG115": Explanation(
        what="One method alone adds more lines than a pull request of this slice may have.",
        why="A port divides itself between methods, not within one.",
        past="Divide the method first (`migrate split`), in a pull request of its own, or raise `budget` under "
        "`[port]`.",
    ),
    "MG116": Explanation(
        what="The method is `__new__`, `__init_subclass__` or `__class_getitem__`, or it warns with a `stacklevel`.",
        why="Python binds these three by their name, without a decorator. A gate keeps the old body under "
        "another name, where it would be bound to an instance. A warning that counts frames would count those "
        "of the gate.",
        past="Cut the slice in one step (`migrate port --cut`), or list the method in `stays`.",
        before="""\
[source]
stays = []
""",
        after="""\
[source]
stays = ["__init_subclass__"]
""",
    ),
    "MG124": Explanation(
        what="The class under `[gate] route` is not in the repository, or has no `for_worker`, or lacks a method "
        "that a stub, a gate or a delegate calls, or has it with other parameters or defaults.",
        why="Gates and stubs pass on what they were given as it came. What the route does not take would be "
        "noticed at the first call, in production.",
        past="Write the method with the parameters that the message shows. It is read from the source: the class "
        "itself and its bases in the repository, where a method that needs no plan may come from the handler.",
        before="""\
class KvNative:
    @classmethod
    def for_worker(cls, worker):
        return cls(worker)

    def admit(self, uuid): ...
""",
        after="""\
class KvNative:
    @classmethod
    def for_worker(cls, worker):
        return cls(worker)

    def admit(self, uuid, wanted=1): ...      # as in the handler
""",
    ),
    "MG125": Explanation(
        what="The class under `[target] base` is not in the repository, or it or one of its bases defines a name "
        "that the generated class defines as well: a moved method, the constructor, a handle.",
        why="The handler would hide what the base means by that name. Which of the two is called would depend on "
        "who calls.",
        past="Rename it in the base. What the base only uses is declared without a value, or under "
        "`if TYPE_CHECKING:`.",
        before="""\
class KvPlanner:
    def on(self, req):
        raise NotImplementedError
""",
        after="""\
class KvPlanner:
    if TYPE_CHECKING:

        def on(self, req: KvRequest) -> Self: ...
""",
    ),
    "MG126": Explanation(
        what="The recipe lists a file under `[human]` that the repository does not have.",
        why="It belongs to the slice, and the codemod writes everything but such files: without it the slice is not "
        "whole, and the proof could not name it.",
        past="Write it first: the handler, its base or its route may import it.",
    ),
    "MG131": Explanation(
        what="`--interactive` asked whether a method moves, and standard input ended.",
        why="Taking silence for a yes would move what nobody looked at, taking it for a no would report success "
        "for work that was not done.",
        past="Run it in a terminal, or list the methods that are to move in the recipe.",
    ),
    "MG117": Explanation(
        what="Moved code uses a member of a handle that the Protocol in the recipe (`protocol_text` or "
        "`protocol_from`) does not have, or writes one that it shows read-only.",
        why="The Protocol is a promise about what the handler needs. A fake or a backend that keeps the promise "
        "would fail at this place.",
        past="Add the member to the Protocol, declare a rewrite to a member that it has, or leave out the Protocol: "
        "it is then inferred from use.",
        before="""\
[[handles]]
name = "gpu_kv"
protocol = "GpuKvBackend"
doc = "Pages."
expressions = ["self.pool"]
protocol_text = '''
class GpuKvBackend(Protocol):
    def free_pages(self) -> int: ...
'''
""",
        after="""\
[[rewrites]]
from = "self.pool.left"
to = "self.gpu_kv.free_pages"
""",
    ),
    "MG118": Explanation(
        what="Moved code calls a method of a handle with arguments that the signature in the given Protocol does "
        "not take.",
        why="The call works on the object that is there today and on nothing that was written for the Protocol.",
        past="Correct the signature in the Protocol. Where the object has other parameters than the Protocol should "
        "show, put an adapter between them.",
    ),
    "MG119": Explanation(
        what="A field of the snapshot is written somewhere after `__init__`, or is computed at each read; the message "
        "names the place. Inner parts of a path (`limit` of `args.limit`) count wherever they are written on any "
        "object but one that is just being made.",
        why="The snapshot is read once, when the handler is made. Moved code would go on with the old value.",
        past="Take the field out of `snapshot.fields`: it is then read through a handle, at each use. If the write is "
        "about another object, or is no longer needed, rename or remove it.",
        before="""\
[snapshot]
name = "config"
class = "KvConfig"
fields = ["PAGE_SIZE", "device"]
""",
        after="""\
[snapshot]
name = "config"
class = "KvConfig"
fields = ["PAGE_SIZE"]
""",
    ),
    "MG120": Explanation(
        what="A handler could be made before a field of the snapshot is set: `__init__` sets it under a condition or "
        "after it has called something that reaches a moved method, the class asks with `hasattr()` whether it is "
        "there, or a moved method runs on the class or on an empty object.",
        why="Making the snapshot reads every field. Where one is missing the stub would raise, though the method "
        "itself may not need it.",
        past="Set the attribute first thing in `__init__`, in its own commit, or take the field out of the snapshot.",
    ),
    "MG121": Explanation(
        what="A moved method writes to an attribute or an element of what a field of the snapshot holds, or calls a "
        "method such as `append` on it.",
        why="A snapshot is configuration: who reads a frozen dataclass does not expect that the handler changes what "
        "is in it.",
        past="Take the field out of the snapshot, so that the method reaches the object through a handle; or list the "
        "method in `stays`.",
    ),
    "MG401": Explanation(
        what="The recipe has an entry that is unknown, missing or of the wrong kind, or names methods that "
        "are not there. All mistakes are reported at once, with their lines.",
        why="A misspelt entry would be ignored in silence, and the slice would not be what its author meant.",
        past="Correct the entries named. `migration/slices/` has recipes to compare with.",
        before="""\
[source]
file = "app/worker.py"
clas = "Worker"
""",
        after="""\
[source]
file = "app/worker.py"
class = "Worker"
""",
    ),
    "MG402": Explanation(
        what="There is neither a recipe of that name with migrate nor a file of that name.",
        why="Nothing can be done without a recipe.",
        past="Name one of those that the message lists, or give the path of a `.toml` file.",
    ),
}
