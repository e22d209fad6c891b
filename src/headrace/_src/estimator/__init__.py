"""Estimators: one object that trains, evaluates, queries and exports a model given as a function.

`columns` turn raw features into tensors, `canned` has models that need no model function, `inputs`
makes batches of arrays. `estimator` is the object itself, `training` and `exporters` run it
repeatedly; `tpu` is for programs written for TPUs.
"""
