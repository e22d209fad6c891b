"""A worker of bench/scaling.py: trains a model, alone or with its variables on a parameter server.

    python bench/scaling_worker.py MODEL [CLUSTER JOB INDEX]

Answers each line "SECONDS" with one line of JSON: how many steps it made in that time, the
processor time that they took here, and the bytes of the model's variables. A parameter server
answers with its processor time since the last question.
"""

import json
import os
import resource
import sys
import time

import numpy as np

import headrace as tf

BATCH = {"mlp": 128, "wide": 64, "deep": 256, "conv": 32}


def processor_time():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def loss_of(model):
    """Build a model; return its loss for one fixed batch."""
    draw = np.random.RandomState(1)
    labels = tf.constant(draw.randint(10, size=BATCH[model]))
    if model == "conv":
        x = tf.constant(draw.rand(BATCH[model], 28, 28, 1), tf.float32)
        x = tf.layers.max_pooling2d(tf.layers.conv2d(x, 16, 5, activation=tf.nn.relu), 2, 2)
        x = tf.layers.max_pooling2d(tf.layers.conv2d(x, 32, 5, activation=tf.nn.relu), 2, 2)
        x = tf.layers.dense(tf.layers.flatten(x), 256, tf.nn.relu)
    else:
        x = tf.constant(draw.rand(BATCH[model], 784), tf.float32)
        for width in {"mlp": [256, 256], "wide": [2048, 1024], "deep": [512] * 6}[model]:
            x = tf.layers.dense(x, width, tf.nn.relu)
    logits = tf.layers.dense(x, 10)
    return tf.losses.sparse_softmax_cross_entropy(labels, logits)


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    model, *task = sys.argv[1:]
    target, device = "", None
    if task:
        cluster, job, index = json.loads(task[0]), task[1], int(task[2])
        server = tf.train.Server(cluster, job, index)
        target = server.target
        own = f"/job:worker/task:{index}"
        device = tf.train.replica_device_setter(cluster=cluster, worker_device=own)
        if job == "ps":
            return serve(answers)
    with tf.device(device):
        loss = loss_of(model)
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    size = sum(int(np.prod(v.shape.as_list())) * 4 for v in tf.trainable_variables())
    config = tf.ConfigProto(device_filters=["/job:ps", own]) if task else None
    with tf.Session(target, config=config) as session:
        if not task or index == 0:
            session.run(tf.global_variables_initializer())
        while session.run(tf.report_uninitialized_variables()).size:
            time.sleep(0.1)
        for _ in range(5):
            session.run(train)
        answers.write("ready\n")
        answers.flush()
        for line in sys.stdin:
            seconds, steps, before = float(line), 0, processor_time()
            start = time.perf_counter()
            while time.perf_counter() - start < seconds:
                session.run(train)
                steps += 1
            took = time.perf_counter() - start
            used = processor_time() - before
            answers.write(
                json.dumps({"steps": steps, "took": took, "used": used, "size": size}) + "\n"
            )
            answers.flush()


def serve(answers):
    answers.write("ready\n")
    answers.flush()
    before = processor_time()
    for _ in sys.stdin:
        now = processor_time()
        answers.write(json.dumps({"used": now - before}) + "\n")
        answers.flush()
        before = now


if __name__ == "__main__":
    main()
