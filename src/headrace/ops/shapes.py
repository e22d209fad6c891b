"""Shapes of tensors, and giving them new ones."""
