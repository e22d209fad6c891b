"""Run every benchmark: python -m bench"""

import runpy
from pathlib import Path

for script in ("session_overhead", "ops"):
    print(f"\n== {script}")
    runpy.run_path(str(Path(__file__).parent / f"{script}.py"), run_name="__main__")
