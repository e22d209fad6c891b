"""How many law checks have run in this process; conftest adds them up and prints the sum."""

checks = 0


def count_check() -> None:
    """Count one check of a law on one sample."""
    global checks
    checks += 1
