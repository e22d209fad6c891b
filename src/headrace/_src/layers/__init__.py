"""Layers: functions of tensors that own their variables. `base` is their base class; `recurrent`
has the cells and the loops that run them over time; `losses` and `metrics` measure the results.
"""
