"""The device type XLA: regions of a step as functions that JAX compiles."""
