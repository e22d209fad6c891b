"""Layers: functions of tensors that own their variables. `base` is their base class; `recurrent`
has the cells and the loops that run them over time; `losses` and `metrics` measure the results.
"""

from headrace.layers import arg_scope as arg_scope
from headrace.layers import base as base
from headrace.layers import contrib_batch_norm as contrib_batch_norm
from headrace.layers import contrib_convolutions as contrib_convolutions
from headrace.layers import contrib_layers as contrib_layers
from headrace.layers import contrib_losses as contrib_losses
from headrace.layers import contrib_norms as contrib_norms
from headrace.layers import contrib_shapes as contrib_shapes
from headrace.layers import conv_transposes as conv_transposes
from headrace.layers import convolutional as convolutional
from headrace.layers import core as core
from headrace.layers import crf as crf
from headrace.layers import fan_initializers as fan_initializers
from headrace.layers import losses as losses
from headrace.layers import metrics as metrics
from headrace.layers import model_analyzer as model_analyzer
from headrace.layers import named_outputs as named_outputs
from headrace.layers import normalization as normalization
from headrace.layers import pooling as pooling
from headrace.layers import recurrent as recurrent
from headrace.layers import regularizers as regularizers
from headrace.layers import separable as separable
from headrace.layers import sequence_losses as sequence_losses
