"""TensorFlow's checkpoint files: V2 bundles and V1 slice tables. In: arrays. Out: files; and back.

Damaged files raise DataLossError: checksums cover every byte that a value depends on.
"""
