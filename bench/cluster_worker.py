"""One framework's cluster, its client in this process: it stays alive and runs the steps that it is
asked for. Also one task of such a cluster.

    python bench/cluster_worker.py headrace|tensorflow
    python bench/cluster_worker.py headrace|tensorflow CLUSTER JOB INDEX

A client answers one line of JSON for each line of JSON that it reads: first a case, then
{"steps": n}, as often as wanted: the seconds of each step, the bytes that passed over the loopback
interface for each, and the resident memory of the parameter server. {"faults": signal} kills or
stops a worker instead: the seconds until the step failed, and until the next one succeeded.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

from worker import framework

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

PS = "/job:ps/task:0"
ROWS, WIDTH = 32, 256  # of a table that a worker reads and changes in a step
STEPS_TO_COMPILE = 3


def main():
    # What the framework prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, *task = sys.argv[1:]
    tf = framework(name)
    if task:
        serve(tf, answers, *task)
    cluster = None
    for line in sys.stdin:
        request = json.loads(line)
        if "steps" in request:
            answer = cluster.run(request["steps"])
        elif "faults" in request:
            answer = cluster.fail(request["faults"])
        else:
            cluster = Cluster(tf, name, request)
            answer = {"version": f"{name} {getattr(tf, 'HEADRACE_VERSION', tf.__version__)}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if cluster is not None:
        cluster.close()


def serve(tf, answers, cluster, job, index):
    """Be a task until the standard input ends."""
    server = tf.train.Server(json.loads(cluster), job_name=job, task_index=int(index))
    answers.write("up\n")
    answers.flush()
    sys.stdin.read()
    del server
    os._exit(0)


class Cluster:
    """A parameter server and workers, in processes, and a session with a step.

    case: `kind`, `workers`, `megabytes` of the parameters, `filled` whether they are written at
    once (else they are zeros), `ps` the number of parameter servers if it is not 1.
    """

    def __init__(self, tf, name, case):
        self._tf, self._name, self._case = tf, name, case
        servers = case.get("ps", 1)
        addresses = [f"127.0.0.1:{port}" for port in free_ports(servers + case["workers"])]
        self._spec = {"ps": addresses[:servers], "worker": addresses[servers:]}
        tasks = [(job, i) for job, found in self._spec.items() for i in range(len(found))]
        self._tasks = {task: self._start(*task) for task in tasks}
        for process in self._tasks.values():
            process.stdout.readline()
        with tf.Graph().as_default() as self._graph:
            self._step = step_of(tf, case)
            self._initialise = tf.global_variables_initializer()
        self._open()
        self._session.run(self._initialise)
        for _ in range(STEPS_TO_COMPILE):
            self._call()

    def _start(self, job, index):
        command = [sys.executable, __file__, self._name, json.dumps(self._spec), job, str(index)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def _open(self):
        tf = self._tf
        config = tf.ConfigProto()
        # TensorFlow's own passes would make one device's work of a step that is for several.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
        target = "grpc://" + self._spec["worker"][0]
        null = self._case["kind"] != "words"
        given = config if self._name == "tensorflow" and null else None
        self._session = tf.Session(target, graph=self._graph, config=given)
        self._call = self._session.make_callable(self._step)

    def run(self, steps):
        before, seconds = loopback_bytes(), []
        for _ in range(steps):
            start = time.perf_counter()
            self._call()
            seconds.append(time.perf_counter() - start)
        sent = (loopback_bytes() - before) / steps
        return {"seconds": seconds, "bytes": sent, "rss": resident(self._tasks["ps", 0].pid)}

    def fail(self, name):
        """Stop the last worker while steps run; then replace it."""
        victim = "worker", self._case["workers"] - 1
        process = self._tasks[victim]
        self.run(20)
        start = time.perf_counter()
        process.send_signal(getattr(signal, name))
        try:
            while True:
                self._call()
        except self._tf.errors.OpError as error:
            detected = time.perf_counter() - start
            message = str(error).splitlines()[0]
        process.kill()
        process.wait()
        self._tasks[victim] = self._start(*victim)
        self._tasks[victim].stdout.readline()
        self._session.close()
        self._open()
        self._call()
        return {"detected": detected, "back": time.perf_counter() - start, "message": message}

    def close(self):
        self._session.close()
        for process in self._tasks.values():
            process.stdin.close()
        for process in self._tasks.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def step_of(tf, case):
    """Return the operation of a null step (OSDI'16 §6.2): each worker fetches parameters, computes
    next to nothing, and sends an update.
    """
    workers = [f"/job:worker/task:{i}" for i in range(case["workers"])]
    if case["kind"] == "words":
        return words_step(tf, workers[0], case)
    size = case["megabytes"] * 2**20 // 4
    if case["kind"] == "sparse":
        return sparse_step(tf, workers, size // WIDTH, case["filled"])
    with tf.device(PS):
        first = tf.zeros([size] if size else [])
        w = tf.get_variable("w", initializer=first, use_resource=True)
    gradients = []
    for worker in workers:
        with tf.device(worker):
            gradients.append(tf.multiply(w if size else w + 0.0, 1e-6))
    with tf.device(PS):
        total = tf.add_n(gradients) if len(gradients) > 1 else gradients[0]
        return tf.group(tf.assign_sub(w, total).op)


def sparse_step(tf, workers, rows, filled):
    first = tf.ones_initializer() if filled else tf.zeros_initializer()
    with tf.device(PS):
        table = tf.get_variable("w", [rows, WIDTH], initializer=first, use_resource=True)
    updates = []
    for worker in workers:
        with tf.device(worker):
            places = tf.random.uniform([ROWS], 0, rows, tf.int32)
        with tf.device(PS):
            found = tf.gather(table, places)
        with tf.device(worker):
            change = found * 1e-6 + 1e-6
        with tf.device(PS):
            updates.append(table.scatter_sub(tf.IndexedSlices(change, places)))
    return tf.group(*[getattr(update, "op", update) for update in updates])


def words_step(tf, worker, case):
    """Return the training step of a model of words: embeddings and the weights of a sampled softmax
    are sharded over the parameter servers.
    """
    words, width, rows = case["words"], case["width"], case["rows"]
    setter = tf.train.replica_device_setter(ps_tasks=case["ps"], worker_device=worker)
    sharded = tf.fixed_size_partitioner(case["ps"])
    first = tf.random_uniform_initializer(-0.1, 0.1, seed=1)
    with (
        tf.device(setter),
        tf.variable_scope("lm", partitioner=sharded, initializer=first, use_resource=True),
    ):
        embeddings = tf.get_variable("embeddings", [words, width])
        weights = tf.get_variable("weights", [words, width])
        biases = tf.get_variable("biases", [words], initializer=tf.zeros_initializer())
        given = tf.random.uniform([rows], 0, words, tf.int64)
        following = tf.random.uniform([rows, 1], 0, words, tf.int64)
        x = tf.nn.embedding_lookup(embeddings, given, partition_strategy="div")
        losses = tf.nn.sampled_softmax_loss(
            list(weights),
            list(biases),
            following,
            x,
            case["sampled"],
            words,
            partition_strategy="div",
        )
        return tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(losses))


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def loopback_bytes():
    """Return how many bytes the loopback interface of this network namespace has received."""
    with open("/proc/net/dev") as lines:
        return next(int(each.split()[1]) for each in lines if each.strip().startswith("lo:"))


def resident(process):
    """Return the resident bytes of a process."""
    with open(f"/proc/{process}/status") as lines:
        return next(int(each.split()[1]) << 10 for each in lines if each.startswith("VmRSS"))


if __name__ == "__main__":
    main()
