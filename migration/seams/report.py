"""The plan in the terminal: a ranked table, what is in each slice, and what comes before what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from migration.errors import Refusal
from migration.seams.mikado import steps, tree_lines
from migration.seams.plan import ClassPlan
from migration.seams.trial import Trial

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 6


def print_plan(plan: ClassPlan, console: Console) -> None:
    from rich.markup import escape

    graph = plan.graph
    total = sum(node.lines for node in graph.nodes.values())
    movable = graph.lines(graph.movable)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False)

    say(
        f"[bold]{graph.shape.name}[/] in {escape(graph.source.path)}: {len(graph.nodes)} methods, {total} lines, "
        f"{movable} of them in methods that may move; budget {plan.wanted.budget} lines a slice"
    )
    if not plan.trials:
        say("nothing to plan: all of it is set-up, has moved already, or is too small for a slice")
        return
    console.print(_table(plan))
    for number, trial in enumerate(plan.trials, plan.first):
        for line in _details(plan, number, trial):
            say(escape(line))
    say("\nWhat comes first (a slice waits for those that it calls):")
    for line in tree_lines(steps(plan)):
        say(escape(line))


def _table(plan: ClassPlan) -> object:
    from rich.table import Table

    table = Table()
    table.add_column("#", justify="right")
    table.add_column("slice", no_wrap=True)
    for name in ("methods", "lines", "members", "written", "stubs needed", "diff"):
        table.add_column(name, justify="right")
    table.add_column("moves today")
    for number, trial in enumerate(plan.trials, plan.first):
        cut = trial.candidate.cluster
        table.add_row(
            str(number),
            trial.candidate.name,
            str(len(cut.names)),
            str(cut.lines),
            _members(trial),
            str(len(trial.written) or ""),
            f"{len(plan.stubs_needed(trial))} of {len(cut.names)}",
            f"+{sum(d.added for d in trial.diff)} -{sum(d.deleted for d in trial.diff)}"
            if trial.diff
            else "",
            _moves(trial),
        )
    return table


def _members(trial: Trial) -> str:
    """Predicted, and what the cut has where that differs."""
    predicted, actual = len(trial.candidate.members), len(trial.members)
    return str(predicted) if trial.plan is None or predicted == actual else f"{predicted}, is {actual}"


def _moves(trial: Trial) -> str:
    codes = ", ".join(sorted({r.code for found in trial.refused.values() for r in found}))
    count = len(trial.candidate.cluster.names)
    text = {
        "yes": "yes",
        "part": f"{count - len(trial.refused)} of {count}: {codes}",
        "no": f"no: {codes or ', '.join(sorted({r.code for r in trial.blocking}))}",
    }[trial.verdict]
    return f"{text}; over the budget" if trial.candidate.over_budget else text


def _details(plan: ClassPlan, number: int, trial: Trial) -> Iterable[str]:
    recipe, cut, graph = trial.recipe, trial.candidate.cluster, plan.graph
    yield f"\n{number} {trial.candidate.name}: {recipe.handler_class} in {recipe.target_file}"
    methods = [f"{name} ({graph.nodes[name].lines})" for name in cut.names]
    yield f"  methods (lines): {', '.join(methods)}"
    members = {h.spec.name: len(h.members) for h in trial.plan.handles} if trial.plan else {}
    handles = [
        f"{h.name} {members.get(h.name, len(h.attributes))}"
        for h in recipe.handles
        if h.name in members or h.attributes
    ]
    yield f"  handles (members): {', '.join(handles) or 'none needed'}"
    if trial.written:
        yield f"  writes: {', '.join(trial.written)}"
    callers = [called for name in cut.names if (called := _callers(plan, name, cut.names))]
    if callers:
        yield f"  called from outside: {_short(callers, '; ')}"
    if trial.recipe.late_bound:
        yield f"  replaced by other files, so called through the worker: {', '.join(trial.recipe.late_bound)}"
    if trial.diff:
        files = (f"{d.path} +{d.added}" + (f" -{d.deleted}" if d.deleted else "") for d in trial.diff)
        yield f"  diff: {', '.join(files)}"
    for name, refusals in trial.refused.items():
        yield f"  stays: {name}: {_reasons(refusals)}"
    if trial.blocking:
        yield f"  refused: {_reasons(trial.blocking)}"
    if trial.lazy:
        yield f"  narrower, once set in __init__: {_short(trial.lazy)}"
    if trial.whole:
        yield f"  narrower, once self is not passed on whole: {_short(trial.whole)}"


def _callers(plan: ClassPlan, name: str, inside: Sequence[str]) -> str:
    own = [caller for caller in plan.graph.callers[name] if caller not in inside]
    others = [path for path in plan.named_in.get(name, ()) if path != plan.graph.source.path]
    beside = plan.graph.source.path in plan.named_in.get(name, ())
    said = [_short(own)] if own else []
    said += ["code beside the class"] if beside else []
    said += [f"{len(others)} other file{'' if len(others) == 1 else 's'}"] if others else []
    return f"{name} by {', '.join(said)}" if said else ""


def _reasons(refusals: Iterable[Refusal]) -> str:
    return "; ".join(dict.fromkeys(f"{r.code} {r.message}" for r in refusals))


def _short(items: Sequence[str], comma: str = ", ") -> str:
    left = len(items) - _SHOWN
    return comma.join(items[:_SHOWN]) + (f" and {left} more" if left > 0 else "")
