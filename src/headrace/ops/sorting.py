"""Order: sort, top_k, unique, searchsorted, sets of values."""
