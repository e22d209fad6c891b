"""Strings: joining, splitting, regular expressions, Unicode, formatting, hashes."""
