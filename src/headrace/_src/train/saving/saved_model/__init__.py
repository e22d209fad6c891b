"""SavedModels: graphs, variables and files in a directory, as TensorFlow writes and serves them."""
