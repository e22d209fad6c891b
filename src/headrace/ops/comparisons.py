"""Comparisons, logic and bits."""
