"""TensorFlow's checkpoint files: V2 bundles, V1 tables of slices. Arrays in, files out; and back.

What is damaged raises DataLossError: every byte that a value depends on is under a checksum.
"""
