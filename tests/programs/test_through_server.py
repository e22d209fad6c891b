"""Programs give the numbers that TensorFlow 1.15.5 gives if their sessions are on a server, and if
their variables are on another task.

With EVERY_PROGRAM in the environment, all programs run; otherwise some that differ most.
"""

import os

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.graph import Graph
from headrace._src.graph.scopes import DeviceScope
from tests.programs.test_tf1_programs import RECORDED
from tests.programs.tf1 import NAMES, run
from tests.through_servers import servers, sessions_on

SOME = [
    *("bandit", "edited_checkpoints", "hooks_and_losses", "k_means", "logistic_regression"),
    *("matrix_factorization", "monitored_training", "partial_run", "python_ops", "text_hashing"),
]
ALONE = {
    "scopes": "it checks the devices that it asks for itself",
    "transformer": "its gradients are colocated with a variable and with a Gather on a worker",
}
CHOSEN = NAMES if "EVERY_PROGRAM" in os.environ else SOME


@pytest.fixture(scope="module")
def cluster():
    with servers(ps=1, worker=1) as started:
        yield started


@pytest.fixture(scope="module")
def local():
    with servers(local=1) as started:
        yield started["local0"]


def check(name):
    numbers, _ = run(tf, name)
    assert [len(step) for step in numbers] == [len(step) for step in RECORDED[name]]
    for step, (ours, theirs) in enumerate(zip(numbers, RECORDED[name], strict=True)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6, err_msg=f"step {step}")


@pytest.mark.parametrize("name", CHOSEN)
def test_one_task(name, local):
    with sessions_on(local.target):
        check(name)


@pytest.mark.parametrize("name", [name for name in CHOSEN if name not in ALONE])
def test_variables_on_another_task(name, cluster, monkeypatch):
    setter = tf.train.replica_device_setter(cluster=cluster["ps0"].server_def.cluster)
    make = Graph.__init__

    def make_placed(graph):
        make(graph)
        graph.scope.devices.append(DeviceScope(setter))

    monkeypatch.setattr(Graph, "__init__", make_placed)
    with sessions_on(cluster["worker0"].target):
        check(name)
