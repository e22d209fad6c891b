"""Sets in the rows of tensors, and edit distance."""
