"""Every op, one definition each, in family files."""
