"""One loop is most of the method: its body is cut. `total` and `last` go round, `break` and `continue` stay."""


class Worker:
    def __init__(self):
        self.seen = []

    def run(self, items):
        total = 0
        last = None
        for index, item in enumerate(items):
            if item is None:
                continue

            total, last = self._run_1_weigh_item_against_last(
                total, last, index, item
            )

            if total > 40:
                break
        else:
            total = -total
        return total, last

    def _run_1_weigh_item_against_last(self, total, last, index, item):
        # Weigh the item against the last one
        weight = len(str(item))
        if last is not None:
            if weight > last:
                weight += 10
            else:
                weight -= 1
        self.seen.append((index, weight))
        total += weight
        last = weight

        # Report now and then
        if index % 2:
            report = [f"{index}:"]
            for number, (_, old) in enumerate(self.seen):
                report.append(f"{number}={old}")
            self.seen.append((index, " ".join(report)))
        return total, last


def exercise():
    worker = Worker()
    return [worker.run([1, None, 333, 22, "x"]), worker.run(["a" * 30, "b" * 40, 1]), worker.seen]
