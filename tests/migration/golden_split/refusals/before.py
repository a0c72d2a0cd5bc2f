"""What cannot be cut, and why: no choice of helpers brings this method within the budget."""


class Worker:
    def run(self, items, warn):
        for item in items:
            if item is None:
                first = item
                break
            if item < 0:
                continue
        else:
            first = 0

        if warn:
            spare = {"limit": first}
            spare["twice"] = 2 * first
            spare["thrice"] = 3 * first
        doubled = []
        if warn:
            doubled.append(spare["limit"])
            doubled.append(spare["twice"])
            doubled.append(spare["thrice"])
        if first:
            doubled.append(1)
            if warn:
                return doubled
            doubled.append(2)
        fresh = [lambda: doubled, lambda: first]
        doubled = [*doubled, 3]
        first = len(fresh)
        return fresh, doubled, first
