"""Maps, reductions, scans, gathers: kernels on rows of arrays."""
