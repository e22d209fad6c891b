"""Layers: functions of tensors that own their variables. `base` is what all of them are;
`recurrent` has the cells and the loops that run them over time.
"""

from headrace.layers import base as base
from headrace.layers import recurrent as recurrent
