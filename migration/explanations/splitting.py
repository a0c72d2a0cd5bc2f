"""MG501 to MG520: a method that is to be split, and statements that cannot become a helper."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG501": Explanation(
        what="The class has no method of that name.",
        why="There is nothing to split. Without --class the longest class of the file is meant.",
        past="`migrate inventory FILE` lists the methods; the message names the class that has one of that name.",
    ),
    "MG502": Explanation(
        what="The class defines the name more than once, and more than one of the definitions is too long.",
        why="It is not clear which one is meant, and a helper of the one could be taken for the other's.",
        past="Delete the definition that is never used, or rename one, in a commit of its own.",
    ),
    "MG503": Explanation(
        what="The method has nothing to call a helper on: it is static, or takes no positional parameter, or "
        "is `__new__` or the like.",
        why="A helper is a method and is called as `self.helper(...)`.",
        past="Make it an ordinary method or a class method first.",
        before="""\
    @staticmethod
    def pack(rows): ...
""",
        after="""\
    @classmethod
    def pack(cls, rows): ...
""",
    ),
    "MG504": Explanation(
        what="Further down the method calls `locals()`, `vars()`, `dir()`, `eval` or `exec`.",
        why="They see all local names of the method. What goes to a helper would no longer be among them. "
        "What stands below the call, and in no loop with it, may be split.",
        past="Pass the values that are meant.",
        before="""\
        log.info("%(step)d of %(steps)d" % locals())
""",
        after="""\
        log.info("%d of %d", step, steps)
""",
    ),
    "MG505": Explanation(
        what="A decorator compiles the source or the bytecode of the method (`jit`, `script`, `kernel`).",
        why="It may not be able to follow the call of a helper, or may compile it otherwise.",
        past="Divide it by hand into functions that each have the decorator.",
    ),
    "MG506": Explanation(
        what="The method binds `self` again.",
        why="The call of a helper after that would go to another object.",
        past="Give the new object another name.",
        before="""\
        self = self.owner
""",
        after="""\
        owner = self.owner
""",
    ),
    "MG507": Explanation(
        what="The class is a Protocol, or has a `__getattribute__`.",
        why="Every method of a Protocol is something that its implementations must have; a helper would be "
        "demanded of all of them. A `__getattribute__` would see each helper being looked up.",
        past="Split the method in the classes that implement the Protocol, or in a class of the usual kind.",
    ),
    "MG508": Explanation(
        what="No choice of helpers brings the method within the budget. The other reasons in the same report "
        "say which statements stay and why, the longest first.",
        why="A helper is made only where the result does exactly what the original does.",
        past="Clear the first obstacles named, in commits of their own. --budget with the number in the "
        "message can be met as it is; --cap lets more names cross a cut; or the recipe lists the method as "
        "an exception, with the reason.",
    ),
    "MG509": Explanation(
        what="A `break`, `continue` or `return` in the statements leads out of them.",
        why="A helper cannot end its caller's loop, nor return in its caller's place from the middle.",
        past="Let the statements compute a value and jump on it outside of them.",
        before="""\
        for page in pages:
            ...
            if page.is_last:
                break
            ...
""",
        after="""\
        for page in pages:
            ...
            done = page.is_last
            if done:
                break
            ...
""",
    ),
    "MG510": Explanation(
        what="The statements `yield`.",
        why="A helper that yields is a generator of its own: `send` and `throw` would have to be passed "
        "through, and the moment at which the code starts would be another.",
        past="Move what stands between two yields into a method by hand.",
    ),
    "MG511": Explanation(
        what="A name that would cross the cut has a value on some paths only.",
        why="A name without a value cannot be passed or returned: the helper would raise where the original "
        "did not.",
        past="Bind it on every path.",
        before="""\
        if rows:
            first = rows[0]
        ...
        if rows:
            use(first)
""",
        after="""\
        first = rows[0] if rows else None
        ...
        if rows:
            use(first)
""",
    ),
    "MG512": Explanation(
        what="An object would live longer, or go earlier: a local that is deleted (`del`, the name of an "
        "`except`) would still be held by the caller; a temporary file, a task, or a tensor of which only the "
        "address is passed on would be let go when the helper returns.",
        why="With tensors that is memory on the GPU; with addresses and files, it is whether they are still there.",
        past="Hold the object by `with`, or give it a name that is used on one side of the cut only.",
        before="""\
        folder = tempfile.TemporaryDirectory()
        fill(folder.name)
""",
        after="""\
        with tempfile.TemporaryDirectory() as path:
            fill(path)
""",
    ),
    "MG513": Explanation(
        what="A nested function, lambda or comprehension uses a local that is bound on the other side of the "
        "cut.",
        why="It sees the variable, not the value: what is bound later it sees too. Across a cut there are two "
        "variables.",
        past="Hand it the value: a default argument, or a parameter.",
        before="""\
        def log(text):
            print(step, text)
""",
        after="""\
        def log(text, step=step):
            print(step, text)
""",
    ),
    "MG514": Explanation(
        what="A local that the statements bind is used in an `except`, `finally` or after a `with` around them, "
        "also when they raise in the middle.",
        why="A helper that raises returns nothing, so the value that the original had already bound is lost.",
        past="Bind the name in front of the `try`. For a context manager that swallows no exception, "
        "--propagates NAME says so.",
        before="""\
        try:
            started = clock()
            ...
        finally:
            report(started)
""",
        after="""\
        started = clock()
        try:
            ...
        finally:
            report(started)
""",
    ),
    "MG515": Explanation(
        what="More names would be passed and returned than the cap allows.",
        why="Such a helper is not easier to read than what it replaces.",
        past="Keep what belongs together in one object (a dataclass), or raise --cap.",
    ),
    "MG516": Explanation(
        what="A statement at the edge of the cut shares its line with another one.",
        why="Lines are moved whole, so that their bytes stay the same.",
        past="Put each statement on a line of its own.",
        before="""\
        rows = []; total = 0
""",
        after="""\
        rows = []
        total = 0
""",
    ),
    "MG517": Explanation(
        what="The statements write a module global.",
        why="The `global` statement holds for one function; in the helper the same line would make a local.",
        past="Turn the global into an attribute first.",
    ),
    "MG518": Explanation(
        what="The statements are never reached, or mention a local that can have no value there, or one that "
        "is bound on one side of the cut and used on the other without need.",
        why="Python decides by the bindings in a function whether a name is local to it. Where the binding "
        "goes and the use stays, the use would mean a global, or nothing.",
        past="Delete what is never reached or never used.",
    ),
    "MG519": Explanation(
        what="The statements count stack frames: `stacklevel=`, `inspect.stack()`, `sys._getframe()`.",
        why="In a helper there is one frame more.",
        past="Leave them in the method, or look up there what they need and pass it.",
    ),
    "MG520": Explanation(
        what="Other code takes the method from the class (`Worker.step`) and may call it on an object that is "
        "no Worker.",
        why="Such an object has the attributes that the method uses, but not the helpers that it would call.",
        past="Call it on an instance, or make that object's class a subclass.",
        before="""\
        Worker.step(fake)
""",
        after="""\
        class Fake(Worker): ...
        Fake().step()
""",
    ),
}
