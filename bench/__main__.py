"""Run every benchmark: python -m bench"""

import subprocess
import sys
from pathlib import Path

SCRIPTS = ("session_overhead", "ops", "control_flow", "training", "curves")

if __name__ == "__main__":
    failed = []
    for script in SCRIPTS:
        print(f"\n== {script}", flush=True)
        path = Path(__file__).parent / f"{script}.py"
        if subprocess.run([sys.executable, str(path)]).returncode:
            failed.append(script)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
