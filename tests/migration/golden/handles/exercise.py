from app.worker import Pool, Worker

worker = Worker(1)
print(worker.ensure(3).pages, worker.pool.pages, worker.grown, worker.name)
first = worker.pool
print(worker.reserve("a", 9), worker.pool is first, worker.table, worker.last, worker.rest)
worker.pool = Pool(100)  # replaced behind the handler's back
print(worker.ensure(50).pages, worker.grown, worker.rank_of(2))
print(sorted(vars(worker)))
