"""MG0xx: a method that cannot move. The examples are files with a slice over the section `Cache`."""

from __future__ import annotations

from typing import Final

from migration.explanations import Explanation

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "MG001": Explanation(
        what="The method reads `__class__`, or calls `super()` in a function nested in it, or the name of the "
        "class does not stand for the class (it is decorated, or bound twice).",
        why="The compiler fills `__class__` in from the class body that the code stands in. In the handler "
        "that is another class. `super()` in the method itself is rewritten to `super(Worker, host)` and "
        "moves.",
        past="Name the class. In a nested function write `super(Worker, self)`.",
        before="""\
class Worker:
    registry = {}

    # ===== Cache =====
    def known(self):
        return __class__.registry
""",
        after="""\
class Worker:
    registry = {}

    # ===== Cache =====
    def known(self):
        return Worker.registry
""",
    ),
    "MG002": Explanation(
        what="A parameter, a local or a global of the method has a name like `__page`, with two underscores "
        "in front and none behind.",
        why="Inside a class body Python compiles such a name as `_Worker__page`, and in the handler as "
        "`_CacheManager__page`: a caller that passes it by keyword, or a global of that name, is missed. "
        "Attributes (`self.__pages`) are written out as what they are compiled to, and move.",
        past="Rename it in a commit of its own. For a parameter that callers must not name, `/` says so.",
        before="""\
class Worker:
    # ===== Cache =====
    def read(self, __page):
        return self.pages[__page]
""",
        after="""\
class Worker:
    # ===== Cache =====
    def read(self, page, /):
        return self.pages[page]
""",
    ),
    "MG003": Explanation(
        what="The method has a `global` statement.",
        why="The variable is one of the worker module. In the handler module the same statement would write "
        "another variable, and all who read the first one would see the old value.",
        past="Keep the value in an attribute, in a commit of its own; or leave the method where it is "
        "(`stays` in the recipe).",
        before="""\
_hits = 0

class Worker:
    # ===== Cache =====
    def hit(self):
        global _hits
        _hits += 1
""",
        after="""\
class Worker:
    hits = 0

    # ===== Cache =====
    def hit(self):
        self.hits += 1
""",
    ),
    "MG006": Explanation(
        what="A decorator of the method compiles it from its source text (`jit`, `njit`, `script`).",
        why="The moved text is not the same text: `self` has become a handle, and the compiler may not know it.",
        past="Keep what is compiled in a function of its own and let the method call it; or list the method "
        "in `stays`.",
        before="""\
import numba

class Worker:
    # ===== Cache =====
    @numba.njit
    def total(self, pages):
        return pages.sum()
""",
        after="""\
import numba

@numba.njit
def _total(pages):
    return pages.sum()

class Worker:
    # ===== Cache =====
    def total(self, pages):
        return _total(pages)
""",
    ),
    "MG007": Explanation(
        what="The class binds the name more than once: a second `def`, an assignment, a branch of an `if`. "
        "Overloads and the accessors of one property are not meant.",
        why="Only the last one counts, and which is last may depend on a condition. A stub in the place of "
        "one of them could change which one is called.",
        past="Delete the definition that is never used, in a commit of its own. For a condition: define the "
        "method once and branch inside it.",
        before="""\
class Worker:
    # ===== Cache =====
    def free(self):
        return 0

    def free(self):
        return self.pages
""",
        after="""\
class Worker:
    # ===== Cache =====
    def free(self):
        return self.pages
""",
    ),
    "MG009": Explanation(
        what="The method is `__del__`.",
        why="It may run while the interpreter shuts down, when the handler module is gone already. The stub "
        "would fail where the original worked, and Python prints such an error and goes on.",
        past="Move what it does into a method, let `__del__` call that one, and keep `__del__` out of the "
        "section or list it in `stays`.",
        before="""\
class Worker:
    # ===== Cache =====
    def __del__(self):
        self.pool.close()
""",
        after="""\
class Worker:
    def __del__(self):
        self.close()

    # ===== Cache =====
    def close(self):
        self.pool.close()
""",
    ),
    "MG010": Explanation(
        what="The method has no first parameter that stands for the object throughout: it takes `*args` only, "
        "or binds `self` again.",
        why="Moved code says `self._worker` where it said `self`. That is the same object only as long as "
        "`self` is never anything else.",
        past="Give the other object another name.",
        before="""\
class Worker:
    # ===== Cache =====
    def reset(self):
        self = self.owner
        self.pages.clear()
""",
        after="""\
class Worker:
    # ===== Cache =====
    def reset(self):
        owner = self.owner
        owner.pages.clear()
""",
    ),
    "MG011": Explanation(
        what="The method looks at the frame or the module that it runs in: `locals()`, `globals()`, `eval`, "
        "`exec`, `vars()`, `inspect.stack()`, `stacklevel=`, `__name__`, `__file__`.",
        why="In the handler it runs in another module, one call deeper and under other names, and so would "
        "see something else. `warnings.warn(..., stacklevel=2)` moves, with a 3, where only the stub calls it; "
        "further up, a frame that is counted may get a stub of its own.",
        past="Use the values themselves. What must look at its caller belongs in `stays`.",
        before="""\
class Worker:
    # ===== Cache =====
    def show(self, page):
        size = self.sizes[page]
        return "{page}: {size}".format(**locals())
""",
        after="""\
class Worker:
    # ===== Cache =====
    def show(self, page):
        size = self.sizes[page]
        return f"{page}: {size}"
""",
    ),
    "MG012": Explanation(
        what="An f-string prints an expression with `self` by `=`.",
        why="`=` prints the source text of the expression. After the move the text is another one, so the "
        "output, a log line that somebody searches for perhaps, would change.",
        past="Write the label out.",
        before="""\
class Worker:
    # ===== Cache =====
    def show(self):
        return f"{self.pages=}"
""",
        after="""\
class Worker:
    # ===== Cache =====
    def show(self):
        pages = self.pages
        return f"self.pages={pages!r}"
""",
    ),
    "MG013": Explanation(
        what="The definition itself, in a decorator or a default, evaluates a name that only the worker module "
        "can give.",
        why="It is evaluated when the class body runs. At that moment the handler module would have to import "
        "the worker module, which is only half loaded.",
        past="Import the name from a module that does not import the worker, or resolve it in the body.",
    ),
    "MG014": Explanation(
        what="The method uses a module variable that some function rebinds by `global`, and has a variable of "
        "its own with that name somewhere, or catches NameError.",
        why="Such a variable is read through its module (`worker_module._limit`), so that the value of the "
        "moment is seen. Where the same name also means something else, that cannot be told apart safely.",
        past="Rename the local one.",
        before="""\
_limit = 10

def set_limit(value):
    global _limit
    _limit = value

class Worker:
    # ===== Cache =====
    def room(self):
        largest = max((_limit for _limit in self.limits), default=0)
        return largest + _limit
""",
        after="""\
_limit = 10

def set_limit(value):
    global _limit
    _limit = value

class Worker:
    # ===== Cache =====
    def room(self):
        largest = max((limit for limit in self.limits), default=0)
        return largest + _limit
""",
    ),
    "MG015": Explanation(
        what="A relative import in the method has its dots on another line than `from`.",
        why="The handler lives in another package, so the dots are replaced by the full name; that is done "
        "only where they stand on the line of the `from`.",
        past="Write it on one line.",
        before="""\
class Worker:
    # ===== Cache =====
    def page_size(self):
        from \\
            .units import MB
        return self.size * MB
""",
        after="""\
class Worker:
    # ===== Cache =====
    def page_size(self):
        from .units import MB
        return self.size * MB
""",
    ),
    "MG018": Explanation(
        what="A use of `self` stands inside a string in a way that this Python gives no exact position for; "
        "Python before 3.12 does so for some f-strings.",
        why="Edits are made at exact positions or not at all.",
        past="Put the expression into a variable in front of the string, or run under Python 3.12 or newer.",
    ),
    "MG019": Explanation(
        what="A name of the method and a name of the handler are the same: a method called `for_worker` or as "
        "a handle, a parameter called as the handler class, an import that means two things.",
        why="One of them would hide the other.",
        past="Rename it in the worker in a commit of its own, or choose other names in the recipe.",
        before="""\
class Worker:
    # ===== Cache =====
    def for_worker(self, rank):
        return self.pages[rank]
""",
        after="""\
class Worker:
    # ===== Cache =====
    def of_rank(self, rank):
        return self.pages[rank]
""",
    ),
    "MG020": Explanation(
        what="A default value that has to stay with the worker's definition covers several lines or has a "
        "comment in its middle.",
        why="Such a default is an object that is made once. It stays on the stub, and the moved definition "
        "takes the argument without a default; that edit is made on one line only.",
        past="Write it on one line.",
        before="""\
class Worker:
    # ===== Cache =====
    def grow(
        self,
        options={
            "pages": 1,
        },
    ):
        return self.pages, options
""",
        after="""\
class Worker:
    # ===== Cache =====
    def grow(
        self,
        options={"pages": 1},
    ):
        return self.pages, options
""",
    ),
    "MG021": Explanation(
        what="The method uses a module variable that is bound on some paths only, and catches NameError or has "
        "a variable of that name itself.",
        why="Such a variable is read through its module, which raises AttributeError where a plain read "
        "raises NameError.",
        past="Bind it on every path.",
        before="""\
import os

if os.name == "posix":
    fast = True

class Worker:
    # ===== Cache =====
    def is_fast(self):
        try:
            return fast and self.ready
        except NameError:
            return False
""",
        after="""\
import os

fast = os.name == "posix"

class Worker:
    # ===== Cache =====
    def is_fast(self):
        return fast and self.ready
""",
    ),
    "MG022": Explanation(
        what="The recipe says that every `hasattr` and `getattr` of an attribute is constant, and of one in the method "
        "this cannot be proved. The message has the reason: who makes the attribute only sometimes, who deletes it, "
        "what cannot be seen.",
        why="Replacing the test by True or False would take the other way at some time.",
        past="Take the attribute out of `[hasattr.attributes]`: the question is then put to the worker, as before. Or "
        "make the attribute in `__init__`, on every way, in a commit of its own. `migrate inventory FILE --hasattr` "
        "lists all such tests with what is known about each.",
    ),
}
