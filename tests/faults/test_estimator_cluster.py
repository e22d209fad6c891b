"""An Estimator's script as the tasks of a cluster: chief, worker, parameter server, evaluator."""

import json
import os
import re
import subprocess
import sys

import pytest

import headrace as tf
from headrace._src.estimator.cluster_task import task_in
from headrace._src.transport.reserve import reserve

SCRIPT = """
import sys
import numpy as np
import headrace as tf

x = np.linspace(-1, 1, 64, dtype=np.float32)
inputs = tf.estimator.inputs.numpy_input_fn({"x": x}, 3 * x + 1, 16, num_epochs=None, shuffle=False)

def model_fn(features, labels, mode, config):
    weights = tf.get_variable("weights", [2], initializer=tf.zeros_initializer())
    loss = tf.losses.mean_squared_error(labels, features["x"] * weights[0] + weights[1])
    step = tf.train.get_global_step()
    train = tf.train.GradientDescentOptimizer(0.2).minimize(loss, step)
    if mode == tf.estimator.ModeKeys.TRAIN:
        print("builds", config.task_type, config.task_id, weights.device, loss.device, flush=True)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

config = tf.estimator.RunConfig(
    model_dir=sys.argv[1], save_checkpoints_steps=100, experimental_max_worker_delay_secs=0
)
estimator = tf.estimator.Estimator(model_fn, config=config)
done = tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(inputs, max_steps=200),
    tf.estimator.EvalSpec(inputs, steps=4, start_delay_secs=0, throttle_secs=0),
)
print("done", config.task_type, done)
if config.task_type == "evaluator":
    print("weights", *estimator.get_variable_value("weights").round(2))
"""


@pytest.mark.timeout(120)
def test_every_task_does_its_part(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "headrace", "launch", str(script), "--ps", "1"]
    command += ["--workers", "1", "--chief", "--evaluator", str(tmp_path / "model")]
    environment = {**os.environ, "HEADRACE_JIT": "off"}
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    text = ran.stdout
    assert ran.returncode == 0, (text, ran.stderr)
    for job in ("chief", "worker"):
        assert re.search(rf"builds {job} 0 /job:ps/task:0 /job:{job}/task:0", text), text
    for job in ("chief", "worker", "ps", "evaluator"):
        assert f"done {job} None" in text
    assert "weights 3.0 1.0" in text


@pytest.mark.timeout(180)
def test_a_master_trains_with_others_and_evaluates_by_itself(tmp_path):
    """The chief of older programs: there is no evaluator, so it evaluates its own checkpoints."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    held = reserve(3)
    ps, master, worker = (each.address for each in held)
    for each in held:
        each.close()
    cluster = {"ps": [ps], "master": [master], "worker": [worker]}
    tasks = {}
    for job in cluster:
        config = {"cluster": cluster, "task": {"type": job, "index": 0}}
        environment = {**os.environ, "HEADRACE_JIT": "off", "TF_CONFIG": json.dumps(config)}
        tasks[job] = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "model")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        said = {job: tasks[job].communicate(timeout=150)[0] for job in ("master", "worker")}
    finally:
        for task in tasks.values():  # a parameter server runs until somebody ends it
            task.kill()
            task.wait()
            task.stdout.close()
    for job, text in said.items():
        assert tasks[job].returncode == 0, text
        assert re.search(rf"builds {job} 0 /job:ps/task:0 /job:{job}/task:0", text), text
        assert f"done {job} None" in text
    events = [
        (event.step, value.simple_value)
        for path in (tmp_path / "model" / "eval").glob("events*")
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "loss"
    ]
    steps = [step for step, _ in events]
    assert len(steps) >= 2 and steps[-1] >= 200  # during the training, and at its end
    assert events[-1][1] < 1e-3


def test_a_master_has_no_chief_and_no_evaluator_beside_it():
    for other, message in (("chief", "job `chief` is not supported"), ("evaluator", "evaluator")):
        config = {"cluster": {"master": ["a:1"]}, "task": {"type": other, "index": 0}}
        if other == "chief":
            config["cluster"]["chief"] = ["b:1"]
        with pytest.raises(ValueError, match=message):
            task_in(config)
