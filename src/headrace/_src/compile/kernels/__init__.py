"""Kernels of anchors: matrix products, convolutions, pooling, changes of layout."""
