"""Splitting by key and putting together again."""
