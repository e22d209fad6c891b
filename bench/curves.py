"""Loss curves of Headrace and PyTorch from the same weights on the same batches.

    python bench/curves.py [--only vgg,mlp] [--steps 20]
    python bench/curves.py --errors

Each step trains on a batch of its own. The largest relative difference of the losses must stay
within the bound; the exit status tells. Networks with convolutions train in `fast` accuracy too,
which has no bound. `--errors` prints those of the convolutions instead: how many times as large as
in `strict` accuracy they are in `default`, where 4 is the bound, and in `fast`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from models import MODELS, Model
from race import HEADRACE, HERE, PYTHONS, Contender, Track

# In bfloat16 a value has three digits: what rounds differently shows at once.
BOUND = {False: 1e-3, True: 5e-2}
ERRORS = 4  # times those of direct convolution, which is all that `strict` has


def accuracy(name: str) -> dict[str, str]:
    return {"HEADRACE_ACCURACY": name}


def curves(model: Model, steps: int, caches: Path) -> list[list[float]]:
    """The losses of PyTorch and of Headrace in `default` and `fast` accuracy, step by step."""
    settings = [accuracy("default"), *([accuracy("fast")] if has_convolutions(model) else [])]
    all_ = [Contender(Track("torch eager"), model, caches)]
    all_ += [Contender(Track(HEADRACE), model, caches, s) for s in settings]
    for step in range(steps):
        for contender in all_:
            contender.use(step)
            contender.run()
    for contender in all_:
        contender.close()
        if contender.track.error:
            raise SystemExit(f"{model.name}: {contender.track.label}: {contender.track.error}")
    return [contender.track.losses for contender in all_]


def has_convolutions(model: Model) -> bool:
    return any(len(shape) == 4 for shape in model.parameters.values())


def difference(ours: list[float], theirs: list[float]) -> float:
    """The largest, relative; a NaN on either side counts as one."""
    found = [abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)]
    return math.nan if any(map(math.isnan, found)) else max(found)


def errors() -> int:
    """Print how many times as large as those of direct convolution errors are."""
    found = {}
    for name in ("strict", "default", "fast"):
        command = [sys.executable, str(HERE / "conv_errors.py")]
        answer = subprocess.check_output(command, env={**os.environ, **accuracy(name)}, text=True)
        found[name] = json.loads(answer)
    print(f"{'root mean square, largest':30}{'':16}{'strict':>20}{'default':>14}{'fast':>14}")
    missed = False
    for shape, direct in found["strict"].items():
        for direction, least in direct.items():
            line = f"{shape:30}{direction:16}{least[0]:>10.1e}{least[1]:>10.1e}"
            for name in ("default", "fast"):
                pairs = zip(found[name][shape][direction], least, strict=True)
                times = [ours / theirs for ours, theirs in pairs]
                missed |= name == "default" and not max(times) <= ERRORS
                line += f"{times[0]:>7.1f}{times[1]:>7.1f}"
            print(line)
    if missed:
        print(f"beyond {ERRORS} times")
    return 1 if missed else 0


def main() -> int:
    trained = [name for name, model in MODELS.items() if model.parameters]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help=f"works, by comma: {', '.join(trained)}")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--errors", action="store_true", help="print those of convolutions")
    options = parser.parse_args()
    if options.errors:
        return errors()
    names = options.only.split(",") if options.only else trained
    if unknown := set(names) - set(trained):
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    if not os.environ.get(PYTHONS["torch"]):
        parser.error(f"set {PYTHONS['torch']} to PyTorch's Python")

    # Nothing is timed here, so threads that wait need not spin: on a busy machine that is crucial.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    headings = ("first loss", "last loss", "difference", "bound", "fast: last", "difference")
    print(f"{'work':34}" + "".join(f"{heading:>12}" for heading in headings))
    missed = []
    with tempfile.TemporaryDirectory(prefix="bench-") as caches:
        for name in names:
            model = MODELS[name]
            theirs, ours, *fast = curves(model, options.steps, Path(caches))
            apart, bound = difference(ours, theirs), BOUND[model.bfloat16]
            if not apart <= bound:
                missed.append(name)
            figures = f"{ours[0]:>12.5f}{ours[-1]:>12.5f}{apart:>12.1e}{bound:>12g}"
            for losses in fast:
                figures += f"{losses[-1]:>12.5f}{difference(losses, theirs):>12.1e}"
            print(f"{model.title:34}{figures}", flush=True)
    if missed:
        print(f"apart: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
