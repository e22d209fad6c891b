"""SavedModels: graphs, variables and files in a directory, as TensorFlow writes and serves them."""

from headrace.train.saved_model import builder as builder
from headrace.train.saved_model import loader as loader
from headrace.train.saved_model import names as names
from headrace.train.saved_model import signatures as signatures
