"""Layers: functions of tensors that own their variables. `base` is their base class; `recurrent`
has the cells and the loops that run them over time; `losses` and `metrics` measure the results.
"""

from headrace._src.layers import (
    arg_scope,
    contrib_batch_norm,
    contrib_convolutions,
    contrib_layers,
    contrib_losses,
    contrib_norms,
    contrib_shapes,
    conv_transposes,
    convolutional,
    core,
    crf,
    fan_initializers,
    functional_loops,
    layer,
    losses,
    metrics,
    model_analyzer,
    named_outputs,
    normalization,
    pooling,
    recurrent,
    regularizers,
    separable,
    sequence_losses,
    swish,
)
