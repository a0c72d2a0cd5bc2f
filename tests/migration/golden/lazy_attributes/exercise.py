from app.worker import Worker

worker = Worker()
print(hasattr(worker, "_counter"), worker.counter(), worker.counter(), worker._counter)
print(worker.has_model(), worker.group(), worker.group())
worker.preferred = "mine"
worker.drop()
print(worker.has_model(), hasattr(worker, "_group"), worker.group())
worker.model = None
print(worker.has_model(), worker.mark(3), sorted(vars(worker)))
