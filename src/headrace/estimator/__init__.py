"""Estimators: a model as a function of mode, trained, evaluated, asked and exported by one object.

`columns` turns raw features into tensors.
"""

from headrace.estimator import columns as columns
