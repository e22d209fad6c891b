"""Ragged tensors: rows of different lengths, as one tensor of values and the splits between rows.

Every module here comes with all functions that take ragged tensors.
"""

import headrace._src.ops.ragged.ragged_dispatch as _dispatch
