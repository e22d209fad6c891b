"""One framework as a worker process: it stays alive and runs the case that it is asked for.

Run by bench/control_flow.py with each framework's own Python (3.7 for TensorFlow 1.15.5), so this
file stays valid Python 3.7:

    python bench/control_flow_worker.py headrace|tensorflow LOOPS

LOOPS is how TensorFlow 2 builds its loops: `v1`, as primitives, or `v2`, as functions.
Answers one line of JSON for each line that it reads, `CASE COUNT`: the seconds of each call and
what each returned. A case is built when it is first asked for.
"""

import json
import os
import sys
import time

from training_worker import limit_threads

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def load(name, loops):
    """The module to call tf, in the mode that builds graphs."""
    from worker import framework

    tf = framework(name)
    if loops == "v1" and hasattr(tf, "disable_control_flow_v2"):
        tf.disable_control_flow_v2()
    return tf


def run(call, count):
    seconds, values = [], []
    for _ in range(count):
        start = time.perf_counter()
        values.append(call())
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "values": values}


def main():
    # What the framework prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**facts):
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    limit_threads()
    import numpy as np
    from control_flow_cases import CASES

    tf = load(*sys.argv[1:])
    answer(version=f"{sys.argv[1]} {getattr(tf, 'HEADRACE_VERSION', tf.__version__)}")
    calls = {}
    for line in sys.stdin:
        case, count = line.split()
        try:
            if case not in calls:
                calls[case] = CASES[case](tf, np)
            answer(**run(calls[case], int(count)))
        except Exception as error:
            first = str(error).strip().split("\n")[0][:200]
            answer(error=f"{type(error).__name__}: {first}")


if __name__ == "__main__":
    main()
