"""Normalisation: batch norm, LRN, moments, l2_normalize."""
