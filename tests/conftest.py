"""Hypothesis settings for the whole suite, and the options that select tests (see `selection`).

In CI every run draws the same examples, so a red build is red again when it is run again. No
example has a deadline, nor a limit on the time of its generation: test machines are shared, and
pytest-timeout bounds each test as a whole.

At the end of a run that included the laws, the counts of ops, of law checks and of exemptions from
the laws are printed.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.laws import count
from tests.selection import (  # noqa: F401  pytest finds hooks here
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
)

os.environ["HEADRACE_VERIFY"] = "1"  # every pass of the pipeline is verified in tests

settings.register_profile(
    "headrace",
    max_examples=50,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headrace")

_from_workers = 0


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
