"""SavedModels: graphs, variables and files in a directory, as TensorFlow writes and serves them."""

from headrace._src.train.saving.saved_model import loader, signatures
from headrace._src.train.saving.saved_model import saved_model_builder as builder
from headrace._src.train.saving.saved_model import saved_model_names as names
