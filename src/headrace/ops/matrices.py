"""Matrix products, einsum, tensordot."""
