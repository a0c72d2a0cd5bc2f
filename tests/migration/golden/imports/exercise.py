import logging

import app.worker
from app import settings
from app.worker import Worker

logging.basicConfig(format="%(name)s %(levelname)s %(message)s", stream=__import__("sys").stdout)
worker = Worker()
settings.configure(9)
print(worker.configured(), worker.measure(3), worker.one_line(), worker.path())
print(type(worker.add("a")) is app.worker.Entry)
app.worker.helper = lambda value: 100
app.worker.DEBUG = True
print(worker.measure(3), worker.one_line())
import app.other
