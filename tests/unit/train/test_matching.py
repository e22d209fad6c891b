"""Two runs, in any form, are compared step by step."""

import json

import pytest

import headrace as tf
from headrace._src.train.inspect.matching import read_run


def first(a, b, **options):
    (found,) = tf.train.compare_runs({"loss": a}, {"loss": b}, **options)
    return found.first


def test_the_first_step_that_differs():
    nan, inf = float("nan"), float("inf")
    assert first([1.0, 2.0], [1.0, 2.0]) is None
    assert first([1.0, 2.0, 3.0], [1.0, 2.1, 3.1]) == 1
    assert first([1.0, 2.0], [1.0 + 1e-6, 2.0 - 1e-6]) is None
    assert first([1.0], [1.0 + 1e-6], rtol=0.0) == 0
    assert first([0.0], [1e-9], atol=1e-8) is None
    assert first([nan, inf, 1.0], [nan, inf, nan]) == 2
    assert first([inf], [-inf]) == 0 == first([1.0], [inf])
    assert first([1.0, 2.0], [1.0]) is None  # as far as both go


def test_what_is_said():
    later, early = tf.train.compare_runs(
        {"a": [1.0, 1.0], "b": [1.0, 2.0]}, {"b": [1.0, 4.0], "a": [1.0, 1.0]}
    )[::-1]
    assert str(early) == "b: part at step 1: 2.0 and 4.0 (difference 5.0e-01)"
    assert str(later) == "a: 2 steps agree (largest difference 0.0e+00)"


def test_names():
    (found,) = tf.train.compare_runs({"loss:0": [1.0]}, {"total:0": [1.0]})
    assert found.name == "loss:0 | total:0"  # there is nothing else that it could be
    with pytest.raises(ValueError, match="no name in common: the first has a, b, the second c"):
        tf.train.compare_runs({"a": [1.0], "b": [1.0]}, {"c": [1.0]})
    (found,) = tf.train.compare_runs({"a": [1.0], "b": [2.0]}, {"c": [2.0]}, pairs={"b": "c"})
    assert found.first is None
    with pytest.raises(ValueError, match="the second run has no d; it has c"):
        tf.train.compare_runs({"a": [1.0]}, {"c": [2.0]}, pairs={"a": "d"})


def test_recorded_runs(tmp_path):
    lines = [{"run": i, "name": "loss:0", "value": v} for i, v in enumerate([1.0, float("nan")])]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert first([1.0, float("nan")], read_run(path)["loss:0"]) is None


def test_event_files(tmp_path):
    for name, numbers in {"a": [3.0, 2.0, 1.0], "b": [3.0, 2.0, 0.5]}.items():
        with tf.summary.FileWriter(tmp_path / name) as writer:
            for step, number in [(1, 9.0), *enumerate(numbers)]:  # step 1 is taken twice
                value = tf.Summary.Value(tag="loss", simple_value=number)
                writer.add_summary(tf.Summary(value=[value]), step)
    (found,) = tf.train.compare_runs(tmp_path / "a", tmp_path / "b")
    assert (found.first, found.a, found.b[2]) == (2, (3.0, 2.0, 1.0), 0.5)
    with pytest.raises(ValueError, match="no event files"):
        read_run(tmp_path)
