"""One contender as a worker process: it stays alive and trains when it is asked to.

Run by bench/training.py, bench/curves.py and bench/lm.py with each framework's own Python:

    python bench/training_worker.py FRAMEWORK MODE MODEL        (MODE may be empty)

Answers one line of JSON for each line that it reads: `batch NUMBER` loads that batch, `run COUNT`
trains and answers with each step's seconds, its loss, and the peak of resident memory so far.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

THREADS = 2
HERE = Path(__file__).resolve().parent


def limit_threads():
    """Two cores for every framework, or the one that it may use, whatever its own settings say;
    before any is imported.
    """
    threads = THREADS
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))[:THREADS]
        os.sched_setaffinity(0, cores)
        threads = len(cores)
    for library in ("OMP", "OPENBLAS", "MKL", "HEADRACE"):
        os.environ[f"{library}_NUM_THREADS"] = str(threads)


def run(contender, count):
    seconds, losses = [], []
    for _ in range(count):
        start = time.perf_counter()
        losses.append(contender.step())
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "losses": losses, "peak": peak()}


def peak():
    """The most resident memory so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    framework, mode, name = sys.argv[1:]
    # What the framework prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**facts):
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    try:
        limit_threads()
        sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
        import contenders
        from models import LANGUAGE, MODELS

        model = {**MODELS, **LANGUAGE}[name]
        contender = contenders.make(framework, mode, model)
        contender.load(model.batch(0))
        answer(version=contender.version, flops=getattr(contender, "flops", None))
        for line in sys.stdin:
            command, number = line.split()
            if command == "batch":
                contender.load(model.batch(int(number)))
                answer()
            else:
                answer(**run(contender, int(number)))
    except Exception as error:
        lines = [line for line in str(error).split("\n") if line.strip()] or [""]
        answer(error=f"{type(error).__name__}: {lines[0][:200]}")
        raise


if __name__ == "__main__":
    main()
