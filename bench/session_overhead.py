"""The cost of a cached Session.run, side by side with TensorFlow's: python
bench/session_overhead.py
"""

from compare import start, table
from overhead_cases import CASES

if __name__ == "__main__":
    table(start("overhead_cases"), list(CASES), rounds=5, budget=0.2)
