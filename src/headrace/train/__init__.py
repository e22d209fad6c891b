"""Training: threads that feed queues, and what trains on them."""

from headrace.train import accumulation as accumulation
from headrace.train import adam as adam
from headrace.train import adam_family as adam_family
from headrace.train import batching as batching
from headrace.train import checkpoint_init as checkpoint_init
from headrace.train import checkpoint_reader as checkpoint_reader
from headrace.train import coordinator as coordinator
from headrace.train import external_optimizer as external_optimizer
from headrace.train import global_step as global_step
from headrace.train import input_producers as input_producers
from headrace.train import layerwise as layerwise
from headrace.train import loss_scale as loss_scale
from headrace.train import moving_averages as moving_averages
from headrace.train import optimizer as optimizer
from headrace.train import queue_runners as queue_runners
from headrace.train import saver as saver
from headrace.train import schedules as schedules
from headrace.train import sign_optimizers as sign_optimizers
from headrace.train import slots as slots
from headrace.train import step_optimizers as step_optimizers
from headrace.train import wrappers as wrappers
