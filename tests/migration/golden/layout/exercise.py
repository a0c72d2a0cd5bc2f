from app.worker import Worker

worker = Worker()
print(*worker.strings(), sep="|")
print(worker.tail(), worker.one(), worker.two(), worker.two(é=5), worker.backslash(), worker.x)
