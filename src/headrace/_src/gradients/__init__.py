"""Symbolic gradients by graph rewriting."""
