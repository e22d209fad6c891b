"""Estimators: one object that trains, evaluates, queries and exports a model given as a function.

`columns` turn raw features into tensors, `canned` has models that need no model function, `inputs`
makes batches of arrays. `estimator` is the object itself, `training` and `exporters` run it
repeatedly; `tpu` is for programs written for TPUs.
"""

from headrace.estimator import canned as canned
from headrace.estimator import columns as columns
from headrace.estimator import early_stopping as early_stopping
from headrace.estimator import estimator as estimator
from headrace.estimator import inputs as inputs
from headrace.estimator import tpu as tpu
from headrace.estimator import training as training
