"""The device type XLA for the tests of a module; other tests do not see it."""

import pytest

from headrace._src.devices import device as devices
from headrace._src.graph import definition
from headrace._src.xla.device import XLA, register

__all__ = ["DEVICE", "xla"]

DEVICE = "/job:localhost/replica:0/task:0/device:XLA:0"


@pytest.fixture(scope="module", autouse=True)
def xla():
    """Register the type; forget it afterwards, unless it was known before."""
    known = XLA in devices.device_types()
    register()
    yield
    if not known:
        del devices._types[XLA], definition._TABLES[XLA]
        devices._devices.pop(DEVICE, None)
