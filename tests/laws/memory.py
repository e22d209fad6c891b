"""A limit on the memory that the laws may use."""

import contextlib
import resource
import sys

LIMITED = sys.platform.startswith("linux")
ALLOWANCE = 4 << 30  # bytes of addresses that a process may take while the law is tried


@contextlib.contextmanager
def little_memory():
    """Limit what this process may have, so that no mistake of ours takes the machine down."""
    if not LIMITED:
        yield
        return
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + ALLOWANCE, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
