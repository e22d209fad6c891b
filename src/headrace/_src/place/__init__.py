"""Placement: which device runs which operation."""
