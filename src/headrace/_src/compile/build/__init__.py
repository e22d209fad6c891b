"""From groups to a plan: the calls of kernels that each group becomes."""
