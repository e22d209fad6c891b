"""Python's operators on tensors."""
