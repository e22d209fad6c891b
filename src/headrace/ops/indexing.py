"""Reading and writing by index: gather, scatter, where, one_hot."""
