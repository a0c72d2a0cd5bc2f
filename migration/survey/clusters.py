"""Methods grouped by the attributes that they have in common: for classes without banners."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping

#: Two groups this unlike are not put together.
THRESHOLD = 0.12
#: A call counts as much as sharing an attribute that two methods alone use.
_CALL = 0.25


def clusters(
    uses: Mapping[str, frozenset[str]], calls: Mapping[str, frozenset[str]]
) -> tuple[tuple[str, ...], ...]:
    """Groups of method names, the largest first; methods that fit nowhere stay alone.

    Args:
        uses: method -> the attributes that it touches. An attribute counts the less, the more
            methods touch it.
        calls: method -> the methods of the same class that it calls.

    Average linkage over cosine similarity; the same input gives the same groups.
    """
    names = sorted(uses)
    frequency = Counter(attribute for found in uses.values() for attribute in found)
    weight = {
        a: math.log(len(names) / count) if count < len(names) else 0.0 for a, count in frequency.items()
    }
    similar = _similarities(names, uses, calls, weight)
    members: dict[int, list[str]] = {index: [name] for index, name in enumerate(names)}
    heap = [(-value, a, b) for a, row in similar.items() for b, value in row.items() if a < b]
    heapq.heapify(heap)
    fresh = len(names)
    while heap:
        value, a, b = heapq.heappop(heap)
        if -value < THRESHOLD:
            break
        if a not in members or b not in members:
            continue
        left, right = members.pop(a), members.pop(b)
        members[fresh] = left + right
        row: dict[int, float] = {}
        for other in sorted((similar[a].keys() | similar[b].keys()) - {a, b}):
            if other in members:
                both = len(left) * similar[a].get(other, 0.0) + len(right) * similar[b].get(other, 0.0)
                row[other] = both / (len(left) + len(right))
                similar[other][fresh] = row[other]
                heapq.heappush(heap, (-row[other], other, fresh))
        similar[fresh] = row
        fresh += 1
    groups = (tuple(sorted(group)) for group in members.values())
    return tuple(sorted(groups, key=lambda group: (-len(group), group)))


def _similarities(
    names: list[str],
    uses: Mapping[str, frozenset[str]],
    calls: Mapping[str, frozenset[str]],
    weight: Mapping[str, float],
) -> dict[int, dict[int, float]]:
    """Cosine of the weighted attribute vectors, plus something for a call, for pairs above zero."""
    users: dict[str, list[int]] = {}
    length = [0.0] * len(names)
    for index, name in enumerate(names):
        for attribute in sorted(uses[name]):
            users.setdefault(attribute, []).append(index)
            length[index] += weight[attribute] ** 2
    found: dict[int, dict[int, float]] = {index: {} for index in range(len(names))}
    for attribute, indexes in sorted(users.items()):
        share = weight[attribute] ** 2
        for position, a in enumerate(indexes if share else ()):
            for b in indexes[position + 1 :]:
                value = share / math.sqrt(length[a] * length[b])
                found[a][b] = found[b][a] = found[a].get(b, 0.0) + value
    place = {name: index for index, name in enumerate(names)}
    for name, called in sorted(calls.items()):
        for other in sorted(called):
            x, y = place.get(name), place.get(other)
            if x is not None and y is not None and x != y:
                found[x][y] = found[y][x] = min(1.0, found[x].get(y, 0.0) + _CALL)
    return found
