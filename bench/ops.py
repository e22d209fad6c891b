"""Every op family against NumPy and TensorFlow: python bench/ops.py [words of case names]"""

import math
import sys

from compare import start, table
from ops_cases import CASES

if __name__ == "__main__":
    wanted = sys.argv[1:]
    cases = [c for c in CASES if not wanted or any(w in c for w in wanted)]
    workers = start("ops_cases")
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
