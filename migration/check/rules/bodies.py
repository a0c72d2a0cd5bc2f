"""Moved bodies against the originals: drift with the patch that mends it, and what small things were lost."""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Iterable

from migration.check.model import Finding, Fix, Place, Seen, fix, many
from migration.check.rules.base import Rule
from migration.check.rules.calls import called
from migration.check.subject import Subject
from migration.code.source import Edit, Source
from migration.code.structure import ClassOutline, FunctionNode, Method, outline
from migration.inverse.fold import stubs_of
from migration.move.cut import CutPlan, CutRefused
from migration.move.moving import moved_name
from migration.patterns import links
from migration.phases.parts import part_of
from migration.phases.state import cut_anew
from migration.proofs.verify import Broken, verify
from migration.recipe_checklist import Item


def drift(subject: Subject, item: Item) -> Seen:
    """The handler is what a port of the class would write now."""
    return _proved(subject) if subject.phase == "cleanup" else _ported_anew(subject)


def _proved(subject: Subject) -> Seen:
    """The original is gone from the tree; the proof file knows what it was."""
    place = subject.at(subject.handler_shape.node)
    if subject.proof is None:
        return Seen((Finding("MG632", "no proof file says what was moved", place, subject.recipe.name),), 1)
    own = subject.proof.recipe.name
    verdicts = verify(subject.tree, [subject.proof, *subject.others], {own})
    verdict = next(verdict for verdict in verdicts if verdict.proof.recipe.name == own)
    methods = len(subject.proof.names)
    if isinstance(verdict, Broken):
        reasons = (Finding("MG632", reason, place, subject.recipe.name) for reason in verdict.reasons)
        return Seen(tuple(reasons), methods)
    return Seen(
        (),
        methods,
        (Place(subject.proof.path, 1),),
        f"{many(methods, 'body')} equal the originals by their proof",
    )


def _ported_anew(subject: Subject) -> Seen:
    recipe, tree = subject.recipe, subject.tree
    there = {method.name: method for method in subject.methods}
    whole = cut_anew(recipe, tree, subject.before_gate)
    if subject.phase == "port" and isinstance(whole, CutPlan):
        # A port may come in parts: what is not there yet has not drifted.
        names = {detail.moved_name for detail in whole.proof.details}
        if (labels := _labels(subject, there)) and names - there.keys():
            whole = cut_anew(part_of(recipe, labels), tree, subject.before_gate)
    if not isinstance(whole, CutPlan):
        place = subject.at(subject.handler_shape.node)
        refusals = whole.refusals if isinstance(whole, CutRefused) else ()
        said = (
            "; ".join(f"{r.code} {r.where}: {r.message}" for r in refusals) or "the class has stubs already"
        )
        return Seen(
            (Finding("MG632", f"the class cannot be ported to compare: {said}", place, recipe.name),), 1
        )
    wanted = next(change.after for change in whole.changes if change.path == recipe.target_file)
    assert wanted is not None
    ours = Source(recipe.target_file, wanted)
    fresh = {method.name: method for method in outline(ours, recipe.handler_class).methods}
    found: list[Finding] = []
    compared = [detail.moved_name for detail in whole.proof.details]
    for name in compared:
        if name not in there:
            legacy = subject.legacy.get(name)
            place = subject.at_worker(legacy.node) if legacy else subject.at(subject.handler_shape.node)
            found.append(Finding("MG632", f"{name} is not in the handler", place, name))
        elif ast.dump(there[name].node) != ast.dump(fresh[name].node):
            # An edited body may need another import, or another member of a Protocol: once is enough.
            head = [] if any(one.fix for one in found) else _head_edits(subject, ours, list(fresh.values()))
            mended = _carried_over(subject, there[name], ours, fresh[name], head)
            message = f"{name} is not what a port of the class would write now"
            found.append(Finding("MG632", message, subject.at(there[name].node), name, mended))
    evidence = (subject.at(subject.handler_shape.node),)
    return Seen(
        tuple(found),
        len(compared),
        evidence,
        f"{many(len(compared), 'body')} equal the class's, handles taken out",
    )


def _labels(subject: Subject, there: Iterable[str]) -> tuple[str, ...]:
    """The names that the handler's methods have in the class."""
    names = set(there)
    methods = outline(_before(subject), subject.recipe.source_class).methods
    return tuple(
        dict.fromkeys(m.name for m in methods if moved_name(m, subject.recipe.source_class) in names)
    )


def _before(subject: Subject) -> Source:
    return Source(subject.recipe.source_file, subject.before_gate)


def _carried_over(subject: Subject, old: Method, ours: Source, new: Method, head: list[Edit]) -> Fix:
    """The handler's method replaced by the one that a port writes: the edit of the class carried over."""
    source = subject.handler
    start, end = source.offset(old.block_start), source.offset(old.block_end + 1)
    text = ours.data[ours.offset(new.block_start) : ours.offset(new.block_end + 1)]
    return fix(f"carry the edit of {old.name} over to the handler", source, [*head, Edit(start, end, text)])


def _head_edits(subject: Subject, ours: Source, methods: list[Method]) -> list[Edit]:
    """What differs in front of the first moved method: imports, Protocols, the wiring of the handles."""
    names = {method.name for method in subject.methods}
    ends = (
        min((method.block_start for method in shape if method.name in names), default=1)
        for shape in (subject.handler_shape.methods, methods)
    )
    old, new = (source.lines[: end - 1] for source, end in zip((subject.handler, ours), ends, strict=True))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    offset = subject.handler.offset
    return [
        Edit(offset(start + 1), offset(end + 1), b"".join(new[first:last]))
        for kind, start, end, first, last in matcher.get_opcodes()
        if kind != "equal"
    ]


def clauses(subject: Subject, item: Item) -> Seen:
    """Keyword arguments, except and finally clauses and asserts of each moved body, as the original has them."""
    shape = outline(_before(subject), subject.recipe.source_class)
    originals = _originals(subject, shape)
    renamed = {links(r.after)[-1]: _last_link(r.before) for r in subject.recipe.rewrites}
    found = []
    looked = 0
    for method in subject.methods:
        original = originals.get(method.name)
        if original is None:
            continue
        looked += 1
        before, after = _small(original, {}), _small(method.node, renamed)
        for what in (before - after).elements():
            found.append(
                Finding("MG637", f"{method.name} has lost {what}", subject.at(method.node), method.name)
            )
        for what in (after - before).elements():
            if not what.startswith("the keyword"):
                place = subject.at(method.node)
                found.append(Finding("MG637", f"{method.name} has come to {what}", place, method.name))
    evidence = (subject.at(subject.handler_shape.node),)
    return Seen(tuple(found), looked, evidence, f"{many(looked, 'body')}, clause by clause")


def _originals(subject: Subject, shape: ClassOutline) -> dict[str, FunctionNode]:
    names = [method.name for method in subject.methods]
    return {name: method.node for name, method in stubs_of(subject.recipe, shape, names).items()}


def _last_link(before: str) -> str:
    try:
        return links(before)[-1]
    except ValueError:
        return before


def _small(node: FunctionNode, renamed: dict[str, str]) -> Counter[str]:
    """The things that a move by hand loses without anybody noticing."""
    found: Counter[str] = Counter()
    # Decorators and defaults may stay on the stub; the body moves whole.
    for part in (part for statement in node.body for part in ast.walk(statement)):
        if isinstance(part, ast.Call):
            name = called(part)
            for keyword in part.keywords:
                found[f"the keyword {keyword.arg or '**'} of {renamed.get(name, name)}()"] += 1
        elif isinstance(part, ast.Try | ast.TryStar):
            for handler in part.handlers:
                kind = ast.unparse(handler.type) if handler.type else "everything"
                found[f"the clause `except {kind}` that {_ends(handler.body)}"] += 1
            found["a finally clause"] += bool(part.finalbody)
            found["an else clause of a try"] += bool(part.orelse)
        elif isinstance(part, ast.Assert):
            found["an assertion"] += 1
    return +found


def _ends(body: list[ast.stmt]) -> str:
    last = body[-1]
    words: dict[type[ast.stmt], str] = {ast.Raise: "raises", ast.Return: "returns", ast.Continue: "continues"}
    return words.get(type(last), "goes on")


RULES = (
    Rule("MG632", "drift", "Legacy bodies and the port have not drifted apart", drift, always=True),
    Rule(
        "MG637",
        "clauses",
        "Keyword arguments, except and finally clauses are the original's",
        clauses,
        always=True,
        phases=("port", "gate"),
    ),
)
