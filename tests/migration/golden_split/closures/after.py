"""A nested function stays on one side with every binding of what it captures."""


class Worker:
    def __init__(self):
        self.calls = []

    def build(self, names):
        # Late binding: each action sees the last name, so the loop moves as a whole
        actions = []
        for name in names:
            actions.append(lambda: self.calls.append(name))
        for action in actions:
            action()

        self._build_1_counter_bound_nested_function(names)

        # A key function is used up by its call: it may go anywhere
        order = {text: index for index, text in enumerate(names)}
        ranked = sorted(names, key=lambda text: -order[text])
        longest = max(len(text) for text in ranked)
        widths = []
        for text in ranked:
            widths.append(text.ljust(longest, "."))
        self.calls.append("|".join(widths))
        return actions

    def _build_1_counter_bound_nested_function(self, names):
        # The counter is bound by the nested function alone
        count = 0

        def bump(step=1):
            nonlocal count
            count += step
            return count

        for text in names:
            bump(len(text))
        self.calls.append(count)


def exercise():
    worker = Worker()
    actions = worker.build(["a", "bb", "ccc"])
    actions[0]()
    return [worker.calls]
