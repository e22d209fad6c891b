"""A session that places its graph by cost: what it measures, and when it chooses again."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.session import cost_placement


def config():
    made = tf.ConfigProto(device_count={"CPU": 2})
    made.experimental.place_by_cost = True
    return made


@pytest.fixture
def model():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [8, 8], name="x")
        with tf.device("/cpu:1"):
            w = tf.Variable(np.eye(8, dtype=np.float32), name="w")
        y = tf.reduce_sum(tf.matmul(x, w, name="product"), name="y")
        yield x, y, tf.assign_add(w, x, name="update")


def device_of(session, name):
    return session._placement.device(name)[-5:]


def test_devices_of_one_process_share_its_cores_so_nothing_is_split(model):
    x, y, _ = model
    with tf.Session(config=config()) as session:
        session.run(tf.global_variables_initializer())
        assert session.run(y, {x: np.ones([8, 8])}) == 64
        assert device_of(session, "w") == "CPU:1"
        assert {device_of(session, n) for n in ("product", "y")} == {"CPU:1"}


def test_traced_steps_are_measured_and_the_choice_is_made_again(model, monkeypatch):
    x, y, update = model
    asked = []

    def choose(operations, groups, feasible, devices, roofs, measured, clusters):
        asked.append(measured)
        assert {op.name for op in operations} >= {"x", "w", "product", "y"}
        return {i: able[len(asked) % len(able)] for i, able in enumerate(feasible)}

    monkeypatch.setattr(cost_placement, "choose_by_cost", choose)
    traced = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    with tf.Session(config=config()) as session:
        session.run(tf.global_variables_initializer())
        before, chosen = device_of(session, "y"), len(asked)
        for run in range(1, 5):
            metadata = tf.RunMetadata()
            got = session.run([y, update], {x: np.ones([8, 8])}, traced, metadata)
            assert got[0] == 64 + (run - 1) * 512
            assert device_of(session, "w") == "CPU:1"  # it keeps state
        assert len(asked) == chosen + 3  # after 1, 2 and 4 steps
        assert asked[-1].seconds("CPU", "y") > 0
        assert device_of(session, "y") != before
        assert "product" in str(session._costs.costs)


def test_the_setting_and_the_option_ask_for_it(monkeypatch):
    from headrace._src.core.config import read
    from headrace._src.session import configuration

    assert configuration.asked(config()).place_by_cost
    assert not configuration.asked(tf.ConfigProto()).place_by_cost
    monkeypatch.setattr(configuration, "settings", lambda: read({"HEADRACE_PLACE": "cost"}))
    assert configuration.asked(tf.ConfigProto()).place_by_cost
    assert configuration.asked(None).place_by_cost
