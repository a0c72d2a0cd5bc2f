"""A guard that returns stays. What decides the result on every path, or at the end, is returned for the method."""


class Worker:
    table = {"x": [4, 5], "y": []}

    def choose(self, name: str, limit: int) -> str:
        if limit < 0:
            return "none"
        rows = self.table.get(name)

        if rows is None:
            return self._choose_1_nothing_known(name)

        return self._choose_2_look_at_rows(limit, rows)

    def _choose_1_nothing_known(self, name: str) -> str:
        # Nothing is known of it: guess by its name
        first = name[:1]
        if first.isupper():
            return f"class {name}"
        for other in self.table:
            if other > name:
                return f"before {other}"
        return "after all"

    def _choose_2_look_at_rows(self, limit: int, rows) -> str:
        # Look at the rows
        best = None
        for row in rows:
            if best is None or row > best:
                best = row
        if best is None:
            return "empty"
        if best > limit:
            return f"{best} is too much"
        return str(best)


def exercise():
    worker = Worker()
    names = ("x", "y", "Big", "a", "zz")
    return [worker.choose(name, limit) for name in names for limit in (-1, 4, 9)]
