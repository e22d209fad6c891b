"""Every op family against NumPy and TensorFlow: python bench/ops.py [--interpreted] [words of case
names]
"""

import argparse
import math

from compare import start, table
from ops_cases import CASES

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--interpreted", action="store_true", help="no step of Headrace's is compiled"
    )
    parser.add_argument("words", nargs="*", help="take the cases whose names have one of these")
    asked = parser.parse_args()
    cases = [c for c in CASES if not asked.words or any(w in c for w in asked.words)]
    workers = start("ops_cases", environment={"HEADRACE_JIT": "off"} if asked.interpreted else {})
    found = table(workers, cases)
    for label in [w.label for w in workers[1:]]:
        ratios = [
            t[label] / t["Headrace"]
            for t in found.values()
            if t.get(label, math.nan) > 0 and t.get("Headrace", math.nan) > 0
        ]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            ahead = sum(r >= 1 for r in ratios)
            print(f"{label}: geometric mean {mean:.2f}x, ahead in {ahead} of {len(ratios)}")
