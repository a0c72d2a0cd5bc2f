"""What the handler class has for a handle with `request = true`: a slot on the class, `on`, and the property.

The slot is on the class, so that a handler that was not bound has no state at all.
"""

from __future__ import annotations

import ast
from typing import Final

from migration.move.names import ImportName
from migration.recipe import HandleSpec, Recipe

REQUEST_IMPORTS: Final = (ImportName("copy"), ImportName("typing", "Self"))


def slot_line(spec: HandleSpec) -> str:
    return f"    _bound_{spec.name}: {spec.protocol} | None = None\n"


def request_lines(handler_class: str, spec: HandleSpec) -> list[str]:
    """`on` and the property, each as one text."""
    name = spec.name
    return [
        f"    def on(self, {name}: {spec.protocol}) -> Self:\n"
        f'        """This handler for one object: a shallow copy, bound to it."""\n'
        f"        bound = copy.copy(self)\n"
        f"        bound._bound_{name} = {name}\n"
        f"        return bound\n",
        f"    @property\n"
        f"    def _{name}(self) -> {spec.protocol}:\n"
        f'        """What `on` bound."""\n'
        f"        if self._bound_{name} is None:\n"
        f'            raise RuntimeError("{handler_class} is not bound: call on({name}) first")\n'
        f"        return self._bound_{name}\n",
    ]


def request_faults(recipe: Recipe, handler: ast.ClassDef) -> list[str]:
    """What the class does otherwise than `on` and the property have to."""
    spec = recipe.request
    if spec is None:
        return []
    name, slot = spec.name, f"_bound_{spec.name}"
    wanted = {
        "on": [
            f"def on(self, {name}: {spec.protocol}) -> Self",
            "bound = copy.copy(self)",
            f"bound.{slot} = {name}",
            "return bound",
        ],
        f"_{name}": [
            f"@property def _{name}(self) -> {spec.protocol}",
            f"if self.{slot} is None: "
            f"raise RuntimeError('{recipe.handler_class} is not bound: call on({name}) first')",
            f"return self.{slot}",
        ],
    }
    found = {node.name: _spelled(node) for node in handler.body if isinstance(node, ast.FunctionDef)}
    faults = [
        f"{method} does not bind {name} as it has to"
        for method in wanted
        if found.get(method) != wanted[method]
    ]
    slots = [ast.unparse(part) for part in handler.body if isinstance(part, ast.AnnAssign | ast.Assign)]
    if slots != [f"{slot}: {spec.protocol} | None = None"]:
        faults.append(f"a handler that is not bound is not without {name}")
    return faults


def _spelled(node: ast.FunctionDef) -> list[str]:
    """Head and statements of a function, without its docstring, each on one line."""
    decorators = "".join(f"@{ast.unparse(part)} " for part in node.decorator_list)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    head = f"{decorators}def {node.name}({ast.unparse(node.args)}){returns}"
    body = node.body[1 if ast.get_docstring(node) is not None else 0 :]
    return [head, *(" ".join(ast.unparse(part).split()) for part in body)]
