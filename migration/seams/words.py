"""Words in the names of methods, and a name for several methods from the words that they share."""

from __future__ import annotations

import itertools
import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from migration.seams.graph import ClassGraph

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
#: Verbs and small words that say nothing about what a method is concerned with.
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        "a add all and apply are as be build by calc call can check compute create do does ensure execute find "
        "for from get handle has if in init initialize is it list make maybe new no not of on one or perform "
        "post pre prepare process remove run set setup should start stop the to try update use with",
    )
)
#: Part of the methods and of their lines, on average, that must have a word for it to name them.
_LEAST = 0.25
#: How much better a name of two words is than one word that as many methods have.
_PAIR = 3.0


def words(name: str) -> list[str]:
    """Lower-case parts of a name in snake or camel case, numbers left out."""
    return [part.lower() for part in _PART.findall(name) if not part.isdigit()]


def telling(name: str) -> list[str]:
    """The words of a name that say what it is about."""
    return [word for word in words(name) if word not in _EMPTY and len(word) > 1]


def root(word: str) -> str:
    """The same for a word and its plural."""
    return (
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
    )


def title_name(title: str) -> str:
    """A name from the words of a banner: `KV Cache Helper Methods` -> `kv_cache`."""
    found = [
        w for w in words(title) if w not in _EMPTY | {"helper", "helpers", "method", "methods", "section"}
    ]
    return identifier("_".join(found[:4] or words(title)[:4]))


def common_name(graph: ClassGraph, names: Sequence[str]) -> str:
    """A name for methods: two neighbouring words, or one, that much of them has and little else does; where
    there is none, the words of the method that others call most, or the longest."""
    if len(names) > 1:
        everywhere = Counter(term for name in graph.nodes for term in set(_terms(name)))
        having: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            for term in set(_terms(name)):
                having.setdefault(term, []).append(name)
        total = graph.lines(names)
        best: tuple[float, tuple[str, ...]] = (0.0, ())
        for term, those in having.items():
            share = (len(those) / len(names) + graph.lines(those) / total) / 2
            if len(those) > 1 and share >= _LEAST:
                found = share * len(those) / everywhere[term] * _PAIR ** (len(term) - 1)
                best = max(best, (found, term))
        if best[0]:
            return identifier("_".join(_spelled(best[1], names)))
    entry = max(names, key=lambda name: (_outside_callers(graph, name, names), graph.nodes[name].lines, name))
    return identifier("_".join(telling(entry)[:3] or words(entry)[:3]))


def _terms(name: str) -> Iterable[tuple[str, ...]]:
    """Single words and pairs of neighbours, without their plurals."""
    kept = frozenset(telling(name))
    found = [(root(word), word in kept) for word in words(name)]
    yield from ((word,) for word, tells in found if tells)
    yield from ((a, b) for (a, tells), (b, too) in itertools.pairwise(found) if tells and too)


def _spelled(term: tuple[str, ...], names: Sequence[str]) -> list[str]:
    """The words of a term as most of the names spell them."""
    spelled = Counter(word for name in names for word in telling(name))
    return [
        max((w for w in spelled if root(w) == part), key=lambda w: (spelled[w], -len(w), w)) for part in term
    ]


def _outside_callers(graph: ClassGraph, name: str, names: Collection[str]) -> int:
    return sum(caller not in names for caller in graph.callers[name])


def identifier(text: str) -> str:
    """`text` made a Python name in lower case."""
    name = re.sub(r"\W+", "_", text.lower()).strip("_") or "part"
    name = f"part_{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or keyword.issoftkeyword(name) else name


def camel(name: str) -> str:
    """`kv_cache` -> `KvCache`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
