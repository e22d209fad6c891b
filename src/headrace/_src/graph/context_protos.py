"""Control-flow contexts as messages, for MetaGraphDefs.

The collections `cond_context` and `while_context` hold the outermost contexts; the message of each
has those inside it. Reading one back marks its operations, so that gradients of an imported graph
see its loops.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import proto
from headrace._src.graph.contexts import CondContext, ControlFlowContext, WhileContext
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.graph.proto_functions import register_proto_function

__all__ = ["from_proto", "to_proto"]


def to_proto(context: Any, export_scope: str | None = None) -> Any:
    """Return a CondContextDef or WhileContextDef; None if the context is outside `export_scope`."""
    if export_scope is not None and not context.name.startswith(f"{export_scope}/"):
        return None
    if isinstance(context, CondContext):
        message: Any = _cond_message(context, export_scope)
    else:
        message = _while_message(context, export_scope)
    message.context_name = _strip(context.name, export_scope)
    names = sorted(context.values)
    message.values_def.values.extend(_strip(n, export_scope) for n in names)
    for name, tensor in context.external_values.items():
        inner = _strip(tensor.name, export_scope)
        message.values_def.external_values[_strip(name, export_scope)] = inner
    for nested in context._nested_contexts:
        field = "cond_ctxt" if isinstance(nested, CondContext) else "while_ctxt"
        getattr(message.nested_contexts.add(), field).CopyFrom(to_proto(nested, export_scope))
    return message


def _cond_message(context: CondContext, scope: str | None) -> proto.CondContextDef:
    return proto.CondContextDef(
        pred_name=_strip(context.pred.name, scope),
        pivot_name=_strip(context.pivot.name, scope),
        branch=context.branch,
    )


def _while_message(context: WhileContext, scope: str | None) -> proto.WhileContextDef:
    def name(tensor: Tensor | None) -> str:
        return "" if tensor is None else _strip(tensor.name, scope)

    return proto.WhileContextDef(
        parallel_iterations=context.parallel_iterations,
        back_prop=context.back_prop,
        swap_memory=context.swap_memory,
        maximum_iterations_name=name(context.maximum_iterations),
        pivot_name=name(context.pivot),
        pivot_for_pred_name=name(context.pivot_for_pred),
        pivot_for_body_name=name(context.pivot_for_body),
        loop_exit_names=[name(t) for t in context.loop_exits],
        loop_enter_names=[name(t) for t in context.loop_enters],
    )


def from_proto(message: Any, import_scope: str | None = None) -> ControlFlowContext:
    """Return the context of a message, for operations of the default graph."""
    graph = get_default_graph()

    def under(name: str) -> str:
        return f"{import_scope}/{name}" if import_scope else name

    def tensor(name: str) -> Tensor:
        return graph.as_graph_element(under(name))

    context: ControlFlowContext
    if isinstance(message, proto.CondContextDef):
        pred, pivot = tensor(message.pred_name), tensor(message.pivot_name)
        context = CondContext(pred, pivot, message.branch, under(message.context_name))
    else:
        limit = message.maximum_iterations_name
        context = WhileContext(
            graph,
            tensor(limit) if limit else None,
            message.parallel_iterations,
            message.back_prop,
            message.swap_memory,
            under(message.context_name),
        )
        context._pivot = tensor(message.pivot_name)
        context._pivot_for_pred = tensor(message.pivot_for_pred_name)
        context._pivot_for_body = tensor(message.pivot_for_body_name)
        context._loop_exits = [tensor(n) for n in message.loop_exit_names]
        context._loop_enters = [tensor(n) for n in message.loop_enter_names]
    graph._contexts = True
    values = message.values_def
    context._values = {under(n) for n in values.values}
    context._external_values = {under(k): tensor(v) for k, v in values.external_values.items()}
    for name in context._values - context._external_values.keys():
        tensor_op = graph.as_graph_element(name.partition(":")[0], allow_tensor=False)
        tensor_op._set_control_flow_context(context)
    with context.entered():
        for nested in message.nested_contexts:
            from_proto(getattr(nested, nested.WhichOneof("ctxt")), import_scope)
    return context


def _strip(name: str, scope: str | None) -> str:
    return name if scope is None else name.removeprefix(f"{scope}/")


register_proto_function(GraphKeys.COND_CONTEXT, "CondContextDef", to_proto, from_proto)
register_proto_function(GraphKeys.WHILE_CONTEXT, "WhileContextDef", to_proto, from_proto)
