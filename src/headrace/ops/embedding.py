"""Looking up rows of large tables."""
