"""Files, readers, Examples, checkpoints and summaries as ops."""
