"""Activations: the relu family, softmax and their like, dropout, bias_add."""
