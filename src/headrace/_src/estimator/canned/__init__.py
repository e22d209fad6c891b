"""Canned estimators: models that need no model function.

`dnn` and `linear` compute logits from columns, `heads` and `contrib_heads` compute predictions,
losses and metrics from logits, `models` combines both, and `estimators` has the public classes.
"""
