"""Arithmetic, element-wise functions, reductions, segments and special functions."""
