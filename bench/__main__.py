"""Run every benchmark: python -m bench"""

import runpy
from pathlib import Path

for script in ("session_overhead", "ops", "training"):
    print(f"\n== {script}")
    try:
        runpy.run_path(str(Path(__file__).parent / f"{script}.py"), run_name="__main__")
    except SystemExit as end:
        # A script that ends with a status has said what is wrong; the others still run.
        if isinstance(end.code, str):
            print(end.code)
