"""Savers, checkpoints by objects, SavedModels and frozen graphs."""
