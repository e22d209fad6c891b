"""Feature columns: turn raw features into tensors for a model.

`base` has the base classes; `numeric`, `categorical`, `crossed`, `embedded` and `sequence` have the
kinds; `input_layer` and `linear_model` combine columns; `parse_spec` tells how to parse them.
"""

from headrace.estimator.columns import categorical as categorical
from headrace.estimator.columns import crossed as crossed
from headrace.estimator.columns import embedded as embedded
from headrace.estimator.columns import input_layer as input_layer
from headrace.estimator.columns import linear_model as linear_model
from headrace.estimator.columns import numeric as numeric
from headrace.estimator.columns import parse_spec as parse_spec
from headrace.estimator.columns import sequence as sequence
