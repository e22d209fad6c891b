"""What lowering rules mean, in NumPy."""
