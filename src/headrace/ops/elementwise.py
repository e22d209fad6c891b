"""Functions of one number, element by element."""
