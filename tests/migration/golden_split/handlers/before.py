"""`stage` is read in `except` and `finally`: no helper binds it. `with` of the file's own manager is looked into."""

import contextlib


class Worker:
    def __init__(self):
        self.log = []

    @contextlib.contextmanager
    def timed(self, name):
        self.log.append(f"start {name}")
        try:
            yield len(self.log)
        finally:
            self.log.append(f"end {name}")

    def load(self, rows):
        stage = "begin"
        total = 0
        try:
            # Check them first
            names = set()
            for row in rows:
                if row in names:
                    self.log.append(f"twice {row}")
                names.add(row)

            stage = "sum"
            with self.timed("sum") as begun:
                # The manager lets exceptions out, so what is bound here may be needed below
                largest = 0
                for row in rows:
                    total += 12 // row
                    largest = max(largest, row)
                self.log.append(begun)

            stage = "done"
        except ZeroDivisionError as error:
            self.log.append((stage, str(error)))
            largest = None
            raise RuntimeError(stage) from error
        finally:
            self.log.append(f"left in {stage}")
        return total, largest


def exercise():
    found = []
    for rows in ([1, 2, 2], [3, 0]):
        worker = Worker()
        try:
            found.append(worker.load(rows))
        except RuntimeError as error:
            found.append((repr(error), repr(error.__cause__)))
        found.append(worker.log)
    return found
