"""Hypothesis settings for the whole suite.

In CI every run draws the same examples, so a red build is red again when it is run again. No
example has a deadline, nor a limit on the time of its generation: test machines are shared, and
pytest-timeout bounds each test as a whole.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headrace",
    max_examples=50,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headrace")
