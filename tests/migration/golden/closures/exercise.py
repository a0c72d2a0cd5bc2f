from app.worker import Sink, Worker

worker = Worker()
print(worker.ordered(), worker.own_self(), worker.restore(True), worker.restore(False), worker.table)
callback = worker.install()
worker.table.append("later")
print(callback(2), Sink.callback is callback)
worker.weights = {}
print(callback(1))
