"""Compile a model ahead of time. In: a Model and a target. Out: an Artifact.

The same passes as for a step, with the sizes of the model's inputs; then one plan for the whole.
"""

from __future__ import annotations

from headrace._src.compile.ahead import Artifact, Port, build
from headrace._src.compile.ahead.model import Model, port_name
from headrace._src.compile.ahead.planning import plan_flow
from headrace._src.devices.target import Target
from headrace._src.graph.dataflow import ValueType
from headrace._src.graph.structured import Unraisable
from headrace._src.pipeline.passes import Options, optimise, prepare

__all__ = ["compile_model"]


def compile_model(model: Model, target: Target, *, name: str, stem: str, origin: str) -> Artifact:
    """Compile `model` as a function `name`, for files called `stem`; see compile.ahead.build."""
    options = Options()
    step = prepare(model.outputs, (), model.inputs, options)
    try:
        flow = optimise(step, model.sizes, options)
    except Unraisable as error:
        raise ValueError(f"can't be compiled ahead of time: {error}") from error
    plan = plan_flow(flow, target)
    outputs = [
        _port(port_name(t), v.type) for t, v in zip(model.outputs, flow.fetches, strict=True)
    ]
    return build(
        plan, model.input_ports, outputs, target=target, name=name, stem=stem, origin=origin
    )


def _port(name: str, type: ValueType) -> Port:
    if type.sizes is None:
        raise ValueError(f"the shape of output {name!r} isn't known before the model runs")
    return Port(name, type.dtype.base_dtype.name, type.sizes)
