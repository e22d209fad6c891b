"""The state of a server: its sessions share variables, and end apart."""

import pytest

import headrace as tf
from headrace._src.core.errors import CancelledError
from headrace._src.devices.device import find_device, known_devices, new_devices, within
from headrace._src.devices.resources import Resources
from headrace._src.ops.random.philox import PhiloxState
from headrace._src.runtime.kernels import NodeContext

TASK = "/job:ps/replica:0/task:1"
CPU = f"{TASK}/device:CPU:"


class State:
    pass


class Step:
    def __init__(self):
        self.error = None

    def cancel(self, error):
        self.error = error


def server(count=2):
    return Resources(new_devices(TASK, 77, {"CPU": count}))


def put(resources, name, container="", device=f"{CPU}0"):
    return resources.get_or_create(device, container, name, State, State)


def test_new_devices_are_known_to_nobody_else():
    first, second = (new_devices(TASK, 77, {"CPU": 2}) for _ in range(2))
    assert [d.name for d in first] == [f"{CPU}0", f"{CPU}1"]
    assert {d.incarnation for d in first} == {77}
    assert not set(first) & set(second) and not set(first) & set(known_devices())
    with within(first):
        assert find_device(f"{CPU}1") is first[1]
        with within(second):
            assert find_device(f"{CPU}1") is second[1]
        assert find_device(f"{CPU}1") is first[1]
        local = find_device("/job:localhost/replica:0/task:0/device:CPU:0")
    assert local in known_devices()


def test_sessions_of_a_server_share_its_state():
    state = server()
    sessions = [Resources(shared=state) for _ in range(2)]
    for device in (f"{CPU}0", f"{CPU}1"):
        v = put(sessions[0], "v", device=device)
        assert put(sessions[1], "v", device=device) is v
        assert put(state, "v", device=device) is v
    assert put(sessions[0], "v", "named") is put(sessions[1], "v", "named")
    later = Resources(shared=state)
    assert later.has("", "", "v")
    assert sessions[0].device(f"{CPU}1") is state.device(f"{CPU}1")
    assert not server().has(f"{CPU}0", "", "v")
    isolated = Resources([state.device(f"{CPU}0")])
    assert not isolated.has("", "", "v") and isolated.has("", "named", "v")


def test_private_state_and_steps_are_a_sessions_own():
    state = server()
    first, second = (Resources(shared=state) for _ in range(2))
    with tf.Graph().as_default():
        op = tf.random_uniform([2]).op
    assert NodeContext(op, first).state(State, State) is not NodeContext(op, second).state(
        State, State
    )
    put(first, "array", "_step_7")
    assert not second.has(f"{CPU}0", "_step_7", "array")
    first.drop("_step_7")
    assert not first.has(f"{CPU}0", "_step_7", "array")


def test_closing_one_session_leaves_the_others():
    state = server()
    first, second = (Resources(shared=state) for _ in range(2))
    v = put(first, "v")
    steps = Step(), Step()
    with first.running(steps[0]), second.running(steps[1]):
        closed = CancelledError(None, None, "closed")
        first.close(closed)
        assert steps[0].error is closed and steps[1].error is None
        with pytest.raises(CancelledError):
            first.enlist(Step())
        second.enlist(Step())
    assert put(second, "v") is v


@pytest.mark.parametrize("names", [None, ["a"], ["localhost"], ["", "a"]])
def test_a_reset_clears_containers_of_this_server_only(names):
    state, other = server(), server()
    sessions = [Resources(shared=state), Resources(shared=state)]
    for resources in (sessions[0], other):
        for container in ("", "a", "b"):
            put(resources, "v", container)
    state.reset(names)
    default, a, b = (sessions[1].has(f"{CPU}0", c, "v") for c in ("", "a", "b"))
    asked = names or ["", "a", "b"]
    assert default == (not {"", "localhost"} & set(asked))
    assert (a, b) == ("a" not in asked, "b" not in asked)
    assert all(other.has(f"{CPU}0", c, "v") for c in ("", "a", "b"))
    again = put(sessions[1], "v")
    assert put(sessions[0], "v") is again


def test_the_private_state_of_a_servers_session_is_saved_and_resumed():
    with tf.Graph().as_default():
        op = tf.random_uniform([2], seed=3).op
    first = Resources(shared=server())
    state = NodeContext(op, first).state(PhiloxState, lambda: PhiloxState(1, 2))
    state.reserve(8)
    saved = first.saved(())
    second = Resources(shared=server())
    second.resume(saved)
    found = NodeContext(op, second).state(PhiloxState, lambda: PhiloxState(1, 2))
    assert str(found.saved()) == str(state.saved())
