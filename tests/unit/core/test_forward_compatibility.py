"""tf.compat's dates and paths, resources beside a program, and which nodes must be on a CPU."""

from pathlib import Path

import pytest

import headrace as tf


def test_dates():
    assert tf.compat.forward_compatible(2019, 8, 20)
    assert not tf.compat.forward_compatible(2019, 8, 21)
    with tf.compat.forward_compatibility_horizon(2020, 1, 1):
        assert tf.compat.forward_compatible(2019, 12, 31)
        assert not tf.compat.forward_compatible(2020, 1, 1)
    assert not tf.compat.forward_compatible(2019, 12, 31)


def test_paths():
    assert tf.compat.path_to_str(Path("a/b")) == "a/b"
    assert tf.compat.path_to_str(b"x") == b"x"


def test_resources():
    name = Path(__file__).name
    assert tf.resource_loader.load_resource(name) == Path(__file__).read_bytes()
    assert tf.resource_loader.get_root_dir_with_all_resources() == str(Path(__file__).parent)
    with pytest.raises(FileNotFoundError):
        tf.resource_loader.load_resource("missing")


def test_nodes_that_must_run_on_a_cpu():
    with tf.Graph().as_default():
        text, number = tf.constant("x").op, tf.constant(1.0).op
        variable = tf.Variable(1.0, use_resource=False).op
        stitch = tf.dynamic_stitch([[0]], [[1]]).op
    must = tf.graph_util.must_run_on_cpu
    assert (must(text), must(number), must(stitch), must(variable)) == (True, False, True, False)
    assert must(variable, pin_variables_on_cpu=True)
    assert must(variable.node_def, True)


def test_sessions_log_placements_on_request(capfd):
    assert not tf.debugging.get_log_device_placement()
    tf.debugging.set_log_device_placement(True)
    try:
        assert tf.debugging.get_log_device_placement()
        with tf.Graph().as_default(), tf.Session() as session:
            session.run(tf.constant(1.0, name="placed"))
    finally:
        tf.debugging.set_log_device_placement(False)
    assert "placed: (Const): " in capfd.readouterr().err


def test_summaries_of_version_2():
    with tf.Graph().as_default():
        assert tf.summary.all_v2_summary_ops() == []
        with pytest.raises(RuntimeError, match=r"No default tf\.contrib\.summary"):
            tf.summary.initialize()
