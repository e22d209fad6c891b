"""Training: threads that feed queues, and what trains on them."""

from headrace.train import batching as batching
from headrace.train import coordinator as coordinator
from headrace.train import input_producers as input_producers
from headrace.train import queue_runners as queue_runners
