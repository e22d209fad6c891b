"""Run benchmarks one after the other: python -m bench [NAME ...]; all of them without a name."""

import argparse
import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "session_overhead",
    "ops",
    "control_flow",
    "devices",
    "cluster",
    "checkpoint",
    "optimizers",
    "lm",
    "training",
    "neighbour",
    "curves",
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    names = parser.parse_args().names or SCRIPTS
    if unknown := sorted(set(names) - set(SCRIPTS)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(SCRIPTS)}")
    failed = []
    for script in names:
        print(f"\n== {script}", flush=True)
        path = Path(__file__).parent / f"{script}.py"
        if subprocess.run([sys.executable, str(path)]).returncode:
            failed.append(script)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
