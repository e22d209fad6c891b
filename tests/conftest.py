"""Hypothesis settings for the whole suite, and the options that select tests (see `selection`).

In CI every run draws the same examples and the same random numbers, so a red build is red again
when it is run again. No example has a deadline, nor a limit on the time of its generation: test
machines are shared, and pytest-timeout bounds each test as a whole.

At the end of a run that included the laws, the counts of ops, of law checks and of exemptions from
the laws are printed, and so is what tests have recorded as their "report".
"""

import os
import random
import sys
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.laws import count
from tests.selection import (  # noqa: F401  pytest finds hooks here
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
)

os.environ["HEADRACE_VERIFY"] = "1"  # every pass of the pipeline is verified in tests
os.environ.setdefault("HEADRACE_JIT", "second")  # tests need no 32 runs to reach compiled code

settings.register_profile(
    "headrace",
    max_examples=50,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headrace")

_from_workers = 0


@pytest.fixture(autouse=True)
def fresh_default_graph():
    """Give each test an empty default graph, so that no test meets what another one has left. Event
    files that a test leaves open, as programs may, are closed while their directory is there.
    """
    import headrace as tf

    tf.reset_default_graph()
    yield
    writers = sys.modules.get("headrace._src.summary.writer")
    if writers is not None:
        from headrace._src.summary.event_writer import _flush_all

        _flush_all()
        writers.FileWriterCache._cache.clear()


@pytest.fixture(autouse=True)
def same_random_numbers(request):
    """In CI, give each test the same numbers in every run, also where it sets no seed."""
    if "CI" not in os.environ:
        yield
        return
    from headrace._src.ops.random import philox

    seed = zlib.crc32(request.node.name.encode())
    random.seed(seed)
    np.random.seed(seed)
    drawn, before = random.Random(seed), philox.entropy
    philox.entropy = lambda: drawn.getrandbits(64)
    yield
    philox.entropy = before


def pytest_sessionfinish(session):
    """A worker of pytest-xdist tells its count to the controller."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["law_checks"] = count.checks


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """The controller adds up what the workers counted."""
    global _from_workers
    _from_workers += getattr(node, "workeroutput", {}).get("law_checks", 0)


def pytest_terminal_summary(terminalreporter):
    checks = count.checks + _from_workers
    if checks:
        from headrace._src.graph.definition import definitions
        from tests.laws import exemptions

        ops, exempt = len(definitions()), exemptions.count()
        terminalreporter.write_line(f"laws: {checks} checks of {ops} ops, {exempt} exemptions")
    for ended in terminalreporter.stats.get("passed", ()):
        for name, text in ended.user_properties if ended.when == "call" else ():
            if name == "report":
                terminalreporter.write_line(text)
