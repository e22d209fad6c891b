"""A watchdog for steps that may hang. In: a session. Out: a hang becomes a failure that says what
each partition waits for.
"""

import threading
from contextlib import contextmanager

import headrace as tf
from headrace._src.runtime.partitions import PartitionedStep

LIMIT = 60.0  # seconds; only a hang takes that long


@contextmanager
def watched(session, seconds=LIMIT):
    """Stop the steps of a session that run when `seconds` have passed in the with-block."""

    def bite():
        for step in list(session._resources._steps):
            message = f"the step hangs:\n{described(step)}"
            step.cancel(tf.errors.DeadlineExceededError(None, None, message))

    timer = threading.Timer(seconds, bite)
    timer.daemon = True
    timer.start()
    try:
        yield session
    finally:
        timer.cancel()
        timer.join()


def described(step):
    """Return what each operation of a step waits for, and what is in transit."""
    lines = [f"  {op.type} '{op.name}' waits for {what}" for what, op in step.waiting()]
    if isinstance(step, PartitionedStep):
        lines += [f"  {run.current()} runs" for run in step._runs if run.running]
        lines += [f"  {key} was sent" for key in step.rendezvous.in_transit()]
    return "\n".join(lines) or "  nothing waits"
