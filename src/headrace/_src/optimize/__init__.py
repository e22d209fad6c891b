"""Passes that make a step smaller or cheaper without changing its results."""
