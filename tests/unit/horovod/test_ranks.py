"""headrace.horovod in several processes, started by `headrace launch --ranks`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace._src.transport.reserve import reserve

TRAINING = """
import json
import numpy as np
import headrace as tf
import headrace.horovod as hvd

hvd.init()
tf.set_random_seed(hvd.rank())  # other initial values on each rank, until they are broadcast
words = tf.placeholder(tf.int32, [None])
table = tf.get_variable("table", [50, 64])
kernel = tf.get_variable("kernel", [64, 512])
loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.embedding_lookup(table, words), kernel) - 1.0))
optimizer = hvd.DistributedOptimizer(
    tf.train.AdamOptimizer(0.01), compression=getattr(hvd.Compression, {compression!r})
)
train = optimizer.minimize(loss)
x = tf.constant(np.arange(hvd.rank() + 1.0, dtype="f"))
slopes = [
    tf.gradients(hvd.allgather(x) * tf.constant([1.0, 2.0, 3.0]), x)[0],
    tf.gradients(hvd.broadcast(x[:1], 1) * float(hvd.rank() + 1), x)[0],
    tf.gradients(hvd.allreduce(x[0]) * 3.0, x)[0],
]
hooks = [hvd.BroadcastGlobalVariablesHook(0)]
with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
    feeds = [{{words: [hvd.rank(), i % 5]}} for i in range(30)]
    found = [float(session.run([loss, train], each)[0]) for each in feeds]
    variables = session.run([table, kernel])
    gradients = [s.tolist() for s in session.run(slopes)]
total = [float(v.astype("f8").sum()) for v in variables]
facts = dict(rank=hvd.rank(), size=hvd.size(), local=[hvd.local_rank(), hvd.local_size()],
             first=found[0], last=found[-1], total=total, slopes=gradients,
             moved=hvd.bytes_moved())
print("FACTS", json.dumps(facts))
"""


def launch(script, *arguments, settings=None, patience=240):
    """Run a script on ranks; return the facts that they print, and everything else."""
    command = [sys.executable, "-m", "headrace", "launch", str(script), *arguments]
    environment = {**os.environ, **(settings or {})}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patience
    )
    facts = [
        json.loads(line.partition("FACTS ")[2])
        for line in done.stdout.splitlines()
        if "FACTS " in line
    ]
    return done.returncode, facts, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("compression", "settings"),
    [("none", {}), ("fp16", {"HEADRACE_TRANSPORT": "tcp"})],
    ids=["shared memory", "TCP in 16 bits"],
)
def test_training(tmp_path: Path, compression, settings):
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(compression=compression))
    code, facts, output = launch(script, "--ranks", "2", settings=settings)
    assert code == 0, output
    first, second = sorted(facts, key=lambda each: each["rank"])
    assert (first["size"], first["local"], second["local"]) == (2, [0, 2], [1, 2])
    assert first["total"] == second["total"]
    assert first["last"] < first["first"] / 2
    # Each rank's own rows of the gradient's sum; the root has the sum of what all made of it.
    assert first["slopes"] == [[2.0], [0.0], [3.0]]
    assert second["slopes"] == [[4.0, 6.0], [3.0, 0.0], [3.0, 0.0]]
    kind = "sent" if settings else "shared"
    size = 30 * 64 * 512 * (2 if compression == "fp16" else 4)
    for each in facts:
        moved = each["moved"][kind]
        assert size <= moved  # n = 2: 2 (n - 1) / n = 1
        rows = 30 * 2 * (64 * 4 + 8) + 4 * (50 + 512) * 64 * 4 + 10_000  # gathered, broadcast
        assert sum(each["moved"].values()) <= 1.05 * size + rows
        assert each["moved"]["control"] < 1000


ELASTIC = """
import json, os, signal, sys, time
import numpy as np
import headrace as tf
import headrace.horovod as hvd

hvd.init()
marker = sys.argv[1]
v = tf.get_variable("v", [20_000], initializer=tf.zeros_initializer())
step = v.assign_add(hvd.allreduce(tf.ones([20_000])))
seen = []

@hvd.elastic.run
def train(state):
    seen.append([hvd.rank(), hvd.size(), state.batch])
    while state.batch < 60 or (hvd.size() < 3 and state.batch < 4000):
        if hvd.rank() == 1 and state.batch == 7 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        session.run(step)
        state.batch += 1
        if hvd.size() < 3:
            time.sleep(0.002)
        state.commit()
    return float(session.run(v)[-1])

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    state = hvd.elastic.TensorFlowState([v], session, batch=0)
    result = train(state)
    print("FACTS", json.dumps(dict(rank=hvd.rank(), result=result, batch=state.batch, seen=seen)))
"""


def test_elastic_training_survives_a_killed_rank(tmp_path):
    """Rank 1 of 3 is killed. The others go on from the last commit; it is started again, joins,
    and takes their state.
    """
    script = tmp_path / "train.py"
    script.write_text(ELASTIC)
    arguments = ("--ranks", "3", "--min-ranks", "2", "--restarts", "1", str(tmp_path / "killed"))
    code, facts, output = launch(script, *arguments)
    assert code == 0, output
    assert len(facts) == 3, output
    facts.sort(key=lambda each: each["rank"])
    assert len({each["result"] for each in facts}) == 1
    for each in facts:
        assert each["result"] == each["batch"]  # every batch counted once
    survivor, newcomer = facts[0], facts[2]
    assert survivor["seen"][0] == [0, 3, 0]
    assert survivor["seen"][1][1] == 2  # without the killed rank
    assert survivor["seen"][1][2] == 7  # nothing that was committed is lost
    assert survivor["seen"][-1][1] == 3
    assert newcomer["seen"][0][2] >= 7  # it starts where the others are
    assert "rank 1: killed by SIGKILL" in output or "SIGKILL" in output


def without_launcher(script, count):
    """Run a script as mpirun does, where rank 0 listens; return exit codes and output by rank."""
    (held,) = reserve(1)
    ranks = []
    for rank in reversed(range(count)):
        settings = {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(count),
            "HEADRACE_RENDEZVOUS": held.address,
        }
        ranks.insert(
            0,
            subprocess.Popen(
                [sys.executable, script],
                env={**os.environ, **settings},
                stdout=subprocess.PIPE,
                text=True,
            ),
        )
    try:
        printed = [each.communicate(timeout=240)[0] for each in ranks]
        return [each.returncode for each in ranks], printed
    finally:
        for each in ranks:
            each.kill()
            each.wait()
        held.close()


def test_a_killed_rank_ends_a_job_that_is_not_elastic(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal\n"
        "import headrace as tf, headrace.horovod as hvd\n"
        "hvd.init()\n"
        "reduced = hvd.allreduce(tf.fill([2], hvd.rank() + 1.0), op=hvd.Sum)\n"
        "with tf.Session() as session:\n"
        "    print(session.run(reduced).tolist())\n"
        "    if hvd.rank() == 1:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    try:\n"
        "        session.run(reduced)\n"
        "    except hvd.HorovodInternalError as error:\n"
        "        print(error.message)\n"
    )
    codes, printed = without_launcher(script, 2)
    assert codes == [0, -9]
    first, second = printed[0].splitlines()
    assert first == "[3.0, 3.0]"
    assert second.startswith("the ranks cannot go on together: rank 1 is gone")
    assert "did not answer" not in second  # heartbeats did not tell
