"""Kernels of single ops that the interpreter calls, and random numbers."""
