"""Looking at models: parameters, magnitudes, comparisons of programs, hyper-parameters."""
