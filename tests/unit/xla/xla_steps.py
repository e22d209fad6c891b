"""Steps of which everything that XLA takes is one region: made of a graph, called with arrays.

The pipeline's cluster pass is not involved. Nodes outside of the region must come before it: they
find variables and generators, for which a step keeps states of its own.
"""

import numpy as np

import headrace as tf
from headrace._src.compile.rewrite.random_generators import find_generators
from headrace._src.compile.rewrite.rewrites import cut_pieces, look_at_divisors, reserve_samples
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.device import find_device
from headrace._src.devices.resources import Resources
from headrace._src.devices.step_context import StepContext
from headrace._src.graph.dataflow import map_parts, variable_type
from headrace._src.graph.definition import bind_kernel
from headrace._src.lowering.references import is_reference
from headrace._src.pipeline import Options, optimise, prepare
from headrace._src.runtime.kernels import NodeContext
from headrace._src.xla.backend import compile_region, why_not
from tests.xla_devices import DEVICE

__all__ = ["DEVICE", "Context", "XlaStep", "compare", "variable_value"]


class Context(NodeContext):
    """The context of kernels, in one step that never ends."""

    step = StepContext()


def _deeply(change, flow):
    return change(map_parts(flow, lambda part: _deeply(change, part)))


class XlaStep:
    """A step with one region. `states` are its variables by name, shared by steps of a test."""

    def __init__(self, fetches, feeds=(), targets=(), states=None, shapes=None):
        shapes = [tuple(t.shape.as_list()) for t in feeds] if shapes is None else shapes
        options = Options()
        flow = prepare(list(fetches), list(targets), list(feeds), options)
        self.flow = optimise(flow, shapes, options)
        for change in (cut_pieces, look_at_divisors, reserve_samples, find_generators):
            self.flow = _deeply(change, self.flow)
        nodes = [n for n in self.flow.nodes if n.constant is None]
        self.reasons = {n: why_not(n) for n in nodes}
        inside = [n for n in nodes if self.reasons[n] is None]
        self.outside = [n for n in nodes if self.reasons[n] is not None]
        made = {v for n in inside for v in n.outputs}
        taken = {v for n in self.outside for v in n.inputs}
        late = sorted(v.name for v in taken & made)
        assert not late, f"{late} are needed outside: {self.refused}"
        wanted = [v for v in self.flow.fetches if v in made and not is_reference(v)]
        self.cluster = compile_region(inside, list(dict.fromkeys(wanted)))
        self.states = {} if states is None else states
        self.resources = Resources()

    @property
    def refused(self):
        """The reasons by op type."""
        return {n.type: r for n, r in self.reasons.items() if r is not None}

    def variable(self, reference):
        name = reference.producer.name
        if name not in self.states:
            dtype, shape = variable_type(reference)
            device = find_device(DEVICE)
            self.states[name] = device.variable(name, as_dtype(dtype), TensorShape.of(shape))
        return self.states[name]

    def __call__(self, *fed):
        known = {f.value: np.asarray(x) for f, x in zip(self.flow.feeds, fed, strict=True)}
        for node in self.outside:
            if (
                all(is_reference(v) for v in node.outputs)
                and not node.inputs
                and (node.type in ("VariableV2", "VarHandleOp", "Variable"))
            ):
                known[node.outputs[0]] = self.variable(node.outputs[0])
                continue
            inputs = [known.get(v, v.constant) for v in node.inputs]
            result = bind_kernel(node, Context(node, self.resources))(*inputs)
            listed = len(node.outputs) > 1 or node.definition.schema.has_list_outputs
            known.update(zip(node.outputs, result if listed else [result], strict=False))
        cluster = self.cluster
        values = [known[v] for v in (*cluster.inputs, *cluster.references)]
        results = cluster(values, ctx=Context(cluster.nodes[0], self.resources))
        known.update(zip(cluster.outputs, results, strict=True))
        return [
            np.asarray(known[v] if v.constant is None else v.constant) for v in self.flow.fetches
        ]


def compare(fetches, feeds=(), values=(), targets=(), initial=None, steps=1, close=1e-5):
    """Run a step on XLA and by a session, from equal variables; compare results and variables."""
    variables = tf.global_variables()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(variables)
        step = XlaStep(fetches, feeds, targets)
        for variable, value in zip(variables, first, strict=True):
            step.variable(variable_value(step, variable)).assign(value)
        for _ in range(steps):
            wanted = session.run([*fetches, *targets], dict(zip(feeds, values, strict=True)))
            found = step(*values)
            for f, w in zip(found, wanted[: len(fetches)], strict=True):
                assert f.dtype == np.asarray(w).dtype and f.shape == np.shape(w)
                np.testing.assert_allclose(f, w, close, close)
        for variable, wanted in zip(variables, session.run(variables), strict=True):
            found = step.states[variable.op.name].read()
            np.testing.assert_allclose(found, wanted, close, close, err_msg=variable.name)
    return step


def variable_value(step, variable):
    """The reference in the step's flow that a variable is."""
    for node in step.flow.nodes:
        if node.name == variable.op.name:
            return node.outputs[0]
    raise AssertionError(f"{variable.name} is not in the step")
