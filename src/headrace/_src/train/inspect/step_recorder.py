"""Run a program and write down what its steps fetch. In: the path of a JSON file that says what to
run and what to watch. Out: a line of JSON for each number, in the file that it names.

This file stands alone, so that any Python can run it: programs of TensorFlow 1.15 under its own
interpreter (3.7), and programs of Headrace. `headrace match` starts it. What the JSON says:

    program    the script, and its arguments
    out        where to write lines {"run": 3, "name": "loss:0", "value": 0.25}
    tensors    names to follow in every run that computes all they need; without any, it's all
               floating scalars that the program fetches
    steps      after how many runs with numbers to stop; null: never
    save_start, load_start   a .npz of the variables as they are before the first of these runs

Variables are loaded by name, those of other names in their order, if the shapes fit.
"""

import importlib.abc
import importlib.machinery
import json
import os
import runpy
import sys
import threading
from typing import Any

import numpy as np

_SESSIONS = {
    "headrace._src.session.session",
    "tensorflow.python.client.session",
    "tensorflow_core.python.client.session",
}
_stateful = {}  # op types, and whether they have state
_PREFIX = "variable:"  # of names in a .npz, which a few names are special to


class RunRecorder:
    """What is known of a program that runs. State: how many runs had numbers to write; whether a
    thread is in Session.run already; what is added to runs, by what they fetch and feed.
    """

    def __init__(self, plan):
        self.plan = plan
        self.out = open(plan["out"], "a", buffering=1)  # noqa: SIM115 (until the process ends)
        self.count = 0
        self.thread = threading.local()
        self.known = {}

    def run(self, original, session, fetches, feed_dict, rest):
        """Stand in for Session.run."""
        if getattr(self.thread, "busy", False):
            return original(session, fetches, feed_dict, *rest)
        self.thread.busy = True
        try:
            added = self.added(session, fetches, feed_dict or {})
            watched = list(numbers_to_be(fetches, added, self.plan["tensors"]))
            if watched and not self.count:
                self.start(session, original)
            results = original(session, [fetches, added], feed_dict, *rest)
        finally:
            self.thread.busy = False
        self.write(zip(leaves([fetches, added]), values([fetches, added], results)), watched)
        return results[0]

    def added(self, session, fetches, feeds):
        """The followed tensors that this run computes, or could without touching anything else."""
        key = (tuple(map(name_of, leaves(fetches))), tuple(map(name_of, feeds)))
        if key not in self.known:
            graph = session.graph
            fed = {name_of(f) for f in feeds}
            ops = [operation(graph, leaf) for leaf in leaves(fetches)]
            inside = ancestors([op for op in ops if op is not None], fed)
            found = [find(graph, name) for name in self.plan["tensors"]]
            fetched = set(map(name_of, leaves(fetches)))
            self.known[key] = [
                t
                for t in found
                if t is not None and t.name not in fetched and is_covered(t, inside, fed)
            ]
        return self.known[key]

    def write(self, pairs, watched):
        wrote = False
        for leaf, value in pairs:
            name = name_of(leaf)
            if name not in watched or value is None:
                continue
            array = np.asarray(value)
            if array.dtype.kind not in "fV" or (array.size != 1 and not self.plan["tensors"]):
                continue
            for suffix, number in measures(array.astype(np.float64)):
                line = {"run": self.count, "name": name + suffix, "value": number}
                self.out.write(json.dumps(line) + "\n")
                wrote = True
        self.count += wrote
        if self.plan["steps"] is not None and self.count >= self.plan["steps"]:
            sys.stdout.flush()
            sys.stderr.flush()
            self.out.close()
            os._exit(0)  # whatever threads the program has: it did what was asked

    # -- The same start

    def start(self, session, original):
        variables = self.variables(session.graph)
        if self.plan["load_start"]:
            held = np.load(self.plan["load_start"])
            given = {name[len(_PREFIX) :]: held[name] for name in held}
            for variable, value in pairs_of(variables, given):
                initializer = variable.initializer
                feeds = {initializer.inputs[1]: value}
                original(session, initializer, feeds)
        if self.plan["save_start"]:
            held = original(session, variables)
            arrays: Any = {_PREFIX + v.op.name: storable(a) for v, a in zip(variables, held)}
            np.savez(self.plan["save_start"], **arrays)

    def variables(self, graph):
        found = graph.get_collection("variables")
        return [v for v in found if v.dtype.base_dtype.is_floating]


def storable(value):
    """An array of a type that NumPy itself has."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def measures(array):
    """A scalar as it is; of others the norm and the mean."""
    if array.size == 1:
        return [("", float(array.ravel()[0]))]
    return [(" norm", float(np.sqrt(np.sum(array**2)))), (" mean", float(np.mean(array)))]


def pairs_of(variables, given):
    """Which variable gets which value."""
    rest = [v for v in variables if v.op.name not in given]
    names = {v.op.name for v in variables}
    left = [name for name in given if name not in names]
    pairs = [(v, given[v.op.name]) for v in variables if v.op.name in given]
    pairs += [(v, given[name]) for v, name in zip(rest, left)]
    for variable, value in pairs:
        if tuple(variable.shape.as_list()) != value.shape:
            raise SystemExit(
                f"headrace match: variable {variable.op.name} has shape {variable.shape}, and what "
                f"it should start from {value.shape}"
            )
    if len(rest) > len(left):
        missing = ", ".join(v.op.name for v in rest[len(left) :])
        raise SystemExit("headrace match: nothing to start from for " + missing)
    return pairs


# -- Fetches ---------------------------------------------------------------------------------------


def leaves(fetches):
    """What a nesting of fetches holds, in order."""
    if isinstance(fetches, dict):
        return [leaf for value in fetches.values() for leaf in leaves(value)]
    if isinstance(fetches, (list, tuple)):
        return [leaf for value in fetches for leaf in leaves(value)]
    return [fetches]


def values(fetches, results):
    """The values of the leaves, from what a run has returned for them."""
    if isinstance(fetches, dict):
        return [v for key in fetches for v in values(fetches[key], results[key])]
    if isinstance(fetches, (list, tuple)):
        return [v for f, r in zip(fetches, results) for v in values(f, r)]
    return [results]


def name_of(leaf):
    return leaf if isinstance(leaf, str) else getattr(leaf, "name", "")


def numbers_to_be(fetches, added, tensors):
    """The names of fetches that are written down."""
    for leaf in leaves([fetches, added]):
        name = name_of(leaf)
        if tensors:
            if name in tensors or name + ":0" in tensors or name in {t + ":0" for t in tensors}:
                yield name
        elif is_number(leaf):
            yield name


def is_number(leaf):
    """Whether a fetch is a floating scalar; of names nobody knows before they're fetched."""
    if isinstance(leaf, str):
        return ":" in leaf
    dtype, shape = getattr(leaf, "dtype", None), getattr(leaf, "shape", None)
    if dtype is None or shape is None or not dtype.base_dtype.is_floating:
        return False
    return shape.ndims is None or shape.num_elements() == 1


# -- The graph -------------------------------------------------------------------------------------


def find(graph, name):
    try:
        return graph.get_tensor_by_name(name if ":" in name else name + ":0")
    except KeyError:
        return None


def operation(graph, leaf):
    if isinstance(leaf, str):
        return graph.as_graph_element(leaf.partition(":")[0])
    return getattr(leaf, "op", leaf if hasattr(leaf, "node_def") else None)


def ancestors(operations, fed):
    """All operations that a run of these needs; a fed tensor needs none."""
    found, stack = set(), list(operations)
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack.extend(t.op for t in op.inputs if t.name not in fed)
            stack.extend(op.control_inputs)
    return found


def is_covered(tensor, inside, fed):
    """Whether a run that has `inside` may compute a tensor as well: what has state, and what reads
    it, must be part of the run already, and placeholders must be fed.
    """
    if tensor.name in fed:
        return False
    for op in ancestors([tensor.op], fed):
        placeholder = not len(op.inputs) and op.type.startswith("Placeholder")
        reads = any(has_state(t.op) for t in op.inputs if t.name not in fed)
        if (placeholder or reads or has_state(op)) and op not in inside:
            return False
    return True


def has_state(op):
    if op.type not in _stateful:
        _stateful[op.type] = op.op_def.is_stateful
    return _stateful[op.type]


# -- Getting in ------------------------------------------------------------------------------------


class Watch(importlib.abc.MetaPathFinder):
    """Changes the module that has Session, once the program has imported it."""

    def __init__(self, plan):
        self.plan = plan

    def find_spec(self, name, path, target=None):
        if name not in _SESSIONS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.install(module)

        spec.loader.exec_module = exec_module
        return spec

    def install(self, module):
        recorder = RunRecorder(self.plan)
        original = module.BaseSession.run

        def run(session, fetches, feed_dict=None, options=None, run_metadata=None):
            return recorder.run(original, session, fetches, feed_dict, (options, run_metadata))

        module.BaseSession.run = run


def main():
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    script = plan["program"][0]
    sys.argv = plan["program"]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    sys.meta_path.insert(0, Watch(plan))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
