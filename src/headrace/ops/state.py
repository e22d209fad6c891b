"""Variables as ops: reading, assigning, scattering."""
