"""Special functions: the gamma, error, zeta and Bessel families as ops."""
