"""Run with the folder before/ or after/ first on the path."""

import asyncio

from app.worker import Worker


class Sub(Worker):
    SIZE = 9

    def close(self):
        return "sub " + super().close()

    def class_default(self, size=1, *, log=None):
        return "overridden", size


for worker in (Worker(), Sub("sub")):
    print(worker.close(), worker.closes(), worker.mangled(Worker()), worker.hands_over([]) is worker)
    others = [1]
    print(worker.hands_over(others) is worker, others[1] is worker)
    print(worker.shows_itself(), worker.computed("name"), worker.size, type(worker).size.__doc__)
    worker.size = 11
    print(worker.size, worker.cached() is worker.cached(), worker.cached(scale=3))
    made, size = type(worker).make()
    print(type(made).__name__, made.name, size, worker.conditional(), len(worker), bool(worker))
    with worker as same:
        print(same is worker)
    print(worker.name, worker.typed(2), worker.typed("a"), worker.class_default(), worker.calls_defaults())
    print(worker.rebound(), worker.maybe(), worker.relative(), worker.starred(), worker.rest())

    async def listen(worker=worker):
        stream = worker.streams(3)
        return [await anext(stream), await stream.asend("x"), await stream.asend(None), await anext(stream, "end")]

    print(asyncio.run(listen()), worker.name)
