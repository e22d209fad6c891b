"""Shapes, slices, joins, permutations, gathers, scatters, sorting: ops that move elements."""
