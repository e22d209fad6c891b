"""Several Ray nodes in a network namespace that has only a loopback device, and clusters on them.
`python -m tests.faults.ray.nodes DIRECTORY`, inside of such a namespace, is one run; what it prints
is what the test reads.

Ray listens on every address of its host, and looks for one by asking for a way to other hosts. In
this namespace there are none.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # addresses: 127.0.0.1
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_DEDUP_LOGS": "0",
}
SCRIPT = Path(__file__).with_name("training.py")


def served() -> None:
    """Run steps on servers that Ray has started, also after one of them was killed."""
    import headrace as tf
    import headrace.cluster

    with headrace.cluster.ray(ps=1, workers=1) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [3], initializer=tf.ones_initializer())
        with tf.device("/job:worker/task:0"):
            y = 2 * v
        with tf.Session(cluster.target) as session:
            session.run(tf.global_variables_initializer())
            np.testing.assert_array_equal(session.run(y), [2, 2, 2])
        cluster.restart("worker", 0)
        while True:
            try:
                with tf.Session(cluster.target) as session:
                    np.testing.assert_array_equal(session.run(y), [2, 2, 2])
                break
            except (tf.errors.UnavailableError, tf.errors.AbortedError):
                time.sleep(0.2)
    print("served")


def launched(address: str, directory: str) -> None:
    """Launch a script on Ray, and kill the node of its parameter server in the middle."""
    command = ["launch", "--ray", address, "--ps", "1", "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "headrace", *command, str(SCRIPT), directory],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    raylet = None
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="")
        if raylet is None and (found := re.search(r"ps 0 is process \d+, child of (\d+)", line)):
            raylet = int(found[1])
        if "step 15" in line:
            assert raylet is not None
            os.kill(raylet, signal.SIGKILL)
            os.waitpid(raylet, 0)  # its tasks end when it is gone
            print("killed the node of ps 0", flush=True)
    print("exit code", process.wait())


def main(directory: str) -> None:
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=2)
        ray.init(address=nodes.address)
        served()
        launched(nodes.address, directory)
    finally:
        ray.shutdown()
        nodes.shutdown()
    print("done")


if __name__ == "__main__":
    main(sys.argv[1])
