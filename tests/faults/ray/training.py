"""A script for `headrace launch --ray`: counts the steps of a cluster, with checkpoints, until it
has been restored from one.

Argument: the directory of checkpoints. A parameter server has the global step.
"""

import json
import os
import sys
import threading
import time

import headrace as tf

directory = sys.argv[1]
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
assert threading.current_thread() is threading.main_thread()
server = tf.train.Server(config["cluster"], job, index)
print(f"{job} {index} is process {os.getpid()}, child of {os.getppid()}", flush=True)
if job == "ps":
    server.join()
    sys.exit()
own = f"/job:worker/task:{index}"
with tf.device(tf.train.replica_device_setter(cluster=config["cluster"], worker_device=own)):
    step = tf.train.get_or_create_global_step()
    train = tf.assign_add(step, 1)


class CountSessions(tf.train.SessionRunHook):
    """Counts how often a session was made: again after each loss."""

    count = 0

    def after_create_session(self, session, coord):
        self.count += 1


sessions = CountSessions()
with tf.train.MonitoredTrainingSession(
    server.target,
    checkpoint_dir=directory,
    save_checkpoint_steps=10,
    config=tf.ConfigProto(device_filters=["/job:ps", own]),
    hooks=[sessions],
) as session:
    value = 0
    while sessions.count < 2:
        before, value = value, session.run(train)
        if before < 15 <= value:
            print("step 15", flush=True)
        time.sleep(0.02)
    print(f"restored after step {before}, at {value}", flush=True)
    print(f"trained: {session.run(train) == value + 1}", flush=True)
