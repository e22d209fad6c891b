"""Busy is not dead. `make chaos` runs the same with the usual heartbeats, 10 s and 4 GB."""

import pytest

from tests.faults.clusters import busy


@pytest.mark.timeout(120)
def test_a_held_lock_and_a_large_transfer_abort_nothing_and_a_stopped_process_does():
    result = busy.run(2.0, 64, HEADRACE_HEARTBEAT_MS="60")
    assert result["last"] == 3.0
    assert result["seconds"] >= 2.0  # longer than six times the 0.3 s of five heartbeats
    assert 0.1 < result["stopped"] < 10.0
    assert "does not answer" in result["error"] or "gone" in result["error"]
