"""Order, checks and printing: group, tuple, Assert, Print, check_numerics."""
