"""SavedModels: graphs, variables and files in a directory, as TensorFlow writes and serves them."""

from headrace._src.train.saving.saved_model import (
    loader,
    saved_model_builder,
    saved_model_names,
    signatures,
)
