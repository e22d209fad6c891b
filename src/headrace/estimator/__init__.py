"""Estimators: a model as a function of mode, trained, evaluated, asked and exported by one object.

`columns` turn raw features into tensors, `canned` are models that need no function, `inputs` make
batches of arrays. `estimator` is the object itself, `training` and `exporters` its longer runs;
`tpu` is for programs that could run on TPUs.
"""

from headrace.estimator import canned as canned
from headrace.estimator import columns as columns
from headrace.estimator import early_stopping as early_stopping
from headrace.estimator import estimator as estimator
from headrace.estimator import inputs as inputs
from headrace.estimator import tpu as tpu
from headrace.estimator import training as training
