"""Feature columns: turn raw features into tensors for a model.

`base` has the base classes; `numeric`, `categorical`, `crossed`, `embedded` and `sequence` have the
kinds; `input_layer` and `linear_model` combine columns; `parse_spec` tells how to parse them.
"""
