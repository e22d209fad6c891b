"""A monitored training that dies while it writes files, and is restarted: it continues from the
latest checkpoint, and saved state is never lost.

Run by test_killed_saves.py, in a separate process; prints how often the training died.
"""

import os
import shutil
import tempfile

import headrace as tf
from tests.faults.killing import survey

STEPS = 3  # per life
STRIDE = 13  # between deaths; coprime to the calls of one save, so that all of them come up
CONFIG = tf.ConfigProto()  # on the interpreter: native code isn't for forked children
CONFIG.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.OFF


def value_at(step):
    """Return the weight after a number of steps."""
    weight = 1.0
    for _ in range(step):
        weight = 2 * weight % 1009
    return weight


def train(directory):
    weight = tf.get_variable("weight", initializer=1.0)
    step = tf.train.get_or_create_global_step()
    advance = tf.group(weight.assign(tf.mod(2 * weight, 1009.0)), step.assign_add(1))
    session = tf.train.MonitoredTrainingSession(
        checkpoint_dir=directory,
        config=CONFIG,
        save_checkpoint_steps=1,
        save_summaries_steps=None,
        log_step_count_steps=None,
        hooks=[tf.train.StopAtStepHook(num_steps=STEPS)],
    )
    with session:
        state = session.run_step_fn(lambda step_context: step_context.session.run([step, weight]))
        assert state == [saved(directory), value_at(state[0])], "it didn't resume where it was"
        while not session.should_stop():
            session.run(advance)


def saved(directory):
    """Return the step of the latest checkpoint, which must be complete; 0 if there is none yet."""
    latest = tf.train.latest_checkpoint(directory)
    if latest is None:
        return 0
    reader = tf.train.load_checkpoint(latest)
    step = int(reader.get_tensor("global_step"))
    assert reader.get_tensor("weight") == value_at(step)
    assert latest.endswith(f"-{step}")
    return step


def main():
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where fsync costs nothing
    directory = tempfile.mkdtemp(dir=memory)
    deaths, before = 0, 0
    for survived in survey(lambda: train(directory), STRIDE):
        deaths += not survived
        now = saved(directory)
        assert now >= before, f"step {before} was saved and is lost"
        before = now
    assert before >= STEPS
    shutil.rmtree(directory)
    return deaths


if __name__ == "__main__":
    print(main())
