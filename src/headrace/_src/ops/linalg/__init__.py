"""Matrix products, decompositions, einsum, Fourier transforms and signals."""
