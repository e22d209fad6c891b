"""Complex numbers."""
