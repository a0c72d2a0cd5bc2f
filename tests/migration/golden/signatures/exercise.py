import asyncio
import inspect

from app.worker import Worker

worker = Worker()
print(worker.plain(1, c=3), worker.plain(1, 5, 6, 7, c=3, d=8, e=9), worker.positional(5), worker.positional(5, b=2))
print(worker.long_signature({"k": [1]}, (3,), a_keyword_with_a_long_name=True))
print(asyncio.run(worker.later(4)), asyncio.run(worker.later(4, scale=5)))
steps = worker.each(2)
print(next(steps), steps.send("x"), next(steps, "end"), worker.log[-2:])
try:
    worker.plain(1)
except TypeError as error:
    print(str(error).replace("Worker.", ""))
with worker.muted("why") as why:
    worker.log.append(why)
with worker.muted("again"):
    raise KeyError
print(worker.log, Worker.pairs([1, 2, 3]), worker.uses_pairs([1, 2, 3, 4]))
for name in sorted(vars(Worker)):
    member = getattr(Worker, name)
    if callable(member) and not name.startswith("__"):
        kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction)
        print(name, inspect.signature(member), [kind(member) for kind in kinds])
print(isinstance(inspect.getattr_static(Worker, "pairs"), staticmethod))
