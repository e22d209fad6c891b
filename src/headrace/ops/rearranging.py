"""Moving blocks between space, batch and depth."""
