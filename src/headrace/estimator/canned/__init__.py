"""Canned estimators: models that need no model function.

`dnn` and `linear` make logits of columns, `heads` and `contrib_heads` make predictions, losses and
metrics of logits, `models` put both together, and `estimators` are what users make.
"""

from headrace.estimator.canned import estimators as estimators
