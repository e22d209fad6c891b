"""Loss curves of Headrace and PyTorch from the same weights on the same batches.

    python bench/curves.py [--only vgg,mlp] [--steps 20]

Each step trains on a batch of its own. The largest relative difference of the losses must stay
within the bound; the exit status tells.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from models import MODELS, Model
from race import HEADRACE, PYTHONS, Contender, Track

# In bfloat16 a value has three digits: what rounds differently shows at once.
BOUND = {False: 1e-3, True: 5e-2}


def curves(model: Model, steps: int, caches: Path) -> tuple[list[float], list[float]]:
    """The losses of Headrace and of PyTorch, step by step."""
    both = [Contender(Track(label), model, caches) for label in (HEADRACE, "torch eager")]
    for step in range(steps):
        for contender in both:
            contender.use(step)
            contender.run()
    for contender in both:
        contender.close()
        if contender.track.error:
            raise SystemExit(f"{model.name}: {contender.track.label}: {contender.track.error}")
    return both[0].track.losses, both[1].track.losses


def main() -> int:
    trained = [name for name, model in MODELS.items() if model.parameters]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help=f"works, by comma: {', '.join(trained)}")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else trained
    if unknown := set(names) - set(trained):
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    if not os.environ.get(PYTHONS["torch"]):
        parser.error(f"set {PYTHONS['torch']} to PyTorch's Python")

    # Nothing is timed here, so threads that wait need not spin: on a busy machine that is crucial.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    print(f"{'work':34}{'first loss':>12}{'last loss':>12}{'difference':>12}{'bound':>8}")
    missed = []
    with tempfile.TemporaryDirectory(prefix="bench-") as caches:
        for name in names:
            model = MODELS[name]
            ours, theirs = curves(model, options.steps, Path(caches))
            difference = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
            bound = BOUND[model.bfloat16]
            # A NaN on either side is a miss too.
            if not difference <= bound:
                missed.append(name)
            figures = f"{ours[0]:>12.5f}{ours[-1]:>12.5f}{difference:>12.1e}{bound:>8g}"
            print(f"{model.title:34}{figures}", flush=True)
    if missed:
        print(f"apart: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
