"""Early stopping by results of evaluations."""

import pytest

import headrace as tf
from tests.unit.estimator.test_estimator import estimator, inputs

stop = tf.estimator.experimental


def evaluations(made, losses):
    """Write results of evaluations, a step each."""
    writer = tf.summary.FileWriter(made.eval_dir())
    for step, loss in enumerate(losses, 1):
        value = tf.Summary.Value(tag="loss", simple_value=loss)
        writer.add_summary(tf.Summary(value=[value]), step)
    writer.close()


@pytest.mark.parametrize(
    ("hook", "argument", "stops"),
    [
        (stop.stop_if_lower_hook, 1.5, True),
        (stop.stop_if_lower_hook, 0.5, False),
        (stop.stop_if_higher_hook, 2.5, True),
        (stop.stop_if_higher_hook, 4.0, False),
        (stop.stop_if_no_decrease_hook, 2, True),
        (stop.stop_if_no_decrease_hook, 3, False),
        (stop.stop_if_no_increase_hook, 4, True),
        (stop.stop_if_no_increase_hook, 5, False),
    ],
)
def test_hooks(tmp_path, hook, argument, stops):
    made = estimator(tmp_path)
    evaluations(made, [3.0, 2.0, 1.0, 1.5, 2.0])
    asked = hook(made, "loss", argument, run_every_secs=None, run_every_steps=1)
    assert asked._should_stop() is stops


def test_training_stops(tmp_path):
    made = estimator(tmp_path)
    evaluations(made, [1.0])
    hook = stop.stop_if_lower_hook(made, "loss", 2.0, run_every_secs=None, run_every_steps=1)
    late = stop.stop_if_lower_hook(
        made, "loss", 2.0, min_steps=5, run_every_steps=1, run_every_secs=None
    )
    made.train(inputs(), steps=50, hooks=[hook])
    assert made.get_variable_value("global_step") == 1
    assert late._should_stop() is False


def test_mistakes(tmp_path):
    made = estimator(tmp_path)
    with pytest.raises(TypeError, match=r"type `tf.estimator.Estimator`"):
        stop.make_early_stopping_hook(3, bool)
    with pytest.raises(ValueError, match="Only one of"):
        stop.make_early_stopping_hook(made, bool, run_every_steps=1)
    evaluations(made, [1.0])
    with pytest.raises(KeyError, match=r"No metric 'lost' among \['loss'\]"):
        stop.stop_if_lower_hook(made, "lost", 1.0)._should_stop()
