"""Steps that went through messages, for tests: what a session runs is what decode_flow returns."""

from contextlib import contextmanager
from graphlib import TopologicalSorter
from unittest import mock

from headrace._src.core import proto
from headrace._src.graph.flow_def import decode_flow, encode_flow
from headrace._src.graph.graph import Graph
from headrace._src.graph.partition import PartitionedProgram
from headrace._src.ops.base.transfers import is_recv, is_send, key_of
from headrace._src.partition.shares import shares
from headrace._src.partition.stages import verify_stages
from headrace._src.pipeline import divide, divided, finish_partitions
from headrace._src.pipeline.schedule import schedule_flow
from headrace._src.session import specialisations


def sent(flow):
    """Return a flow as another process gets it: nothing of this graph is left in it, except for its
    Python functions.
    """
    data = encode_flow(flow).SerializeToString(deterministic=True)
    library = Graph()
    for node in flow.nodes:
        if node.origin is not None:
            library._py_functions.update(node.origin.graph._py_functions)
    decoded = decode_flow(proto.GraphDef.FromString(data), library)
    assert str(decoded) == str(flow)
    assert encode_flow(decoded).SerializeToString(deterministic=True) == data
    return decoded


@contextmanager
def _instead(finish, finish_as_is):
    with (
        mock.patch.object(specialisations, "finish", finish),
        mock.patch.object(specialisations, "finish_as_is", finish_as_is),
    ):
        yield


@contextmanager
def steps_are_sent():
    """Let sessions run steps that were encoded and decoded; yield the list of them."""
    seen = []
    finish, finish_as_is = specialisations.finish, specialisations.finish_as_is

    def finish_sent(flow, *args, **kwargs):
        seen.append(flow)
        return finish(sent(flow), *args, **kwargs)

    def finish_sent_as_is(flow, options, whole=False):
        if whole:  # fed and fetched piece by piece, by the client's tensors
            return finish_as_is(flow, options, whole)
        seen.append(flow)
        return finish_as_is(sent(flow), options)

    with _instead(finish_sent, finish_sent_as_is):
        yield seen


@contextmanager
def partitions_are_sent():
    """Let sessions run steps whose partitions were encoded, decoded and compiled one by one; yield
    the list of the Partitions.
    """
    seen = []
    finish_as_is = specialisations.finish_as_is

    def finish_parts(flow, options, compiled=False, as_is=False):
        made = divide(flow, options, as_is)
        seen.append(made)
        finished = []
        with mock.patch.object(
            divided, "schedule_flow", lambda flow: finished.append(flow) or schedule_flow(flow)
        ):
            found = [
                finish_partitions([(p.device, sent(p.flow))], options, compiled, as_is)
                for p in made.parts
            ]
        if not any(flow.steers for flow in finished):
            _check_acyclic(finished)
        each = shares(made, lambda device: device)
        assert [share.parts for share in each] == [(part,) for part in made.parts]
        return PartitionedProgram(
            tuple(p.devices[0] for p in found),
            tuple(p.programs[0] for p in found),
            tuple(share.feeds for share in each),
            made.sources,
            made.edges,
        )

    def finish_parts_as_is(flow, options, whole=False):
        if whole:
            return finish_as_is(flow, options, whole)
        return finish_parts(flow, options, as_is=True)

    with _instead(finish_parts, finish_parts_as_is):
        yield seen


def _check_acyclic(flows):
    """Check that the nodes and clusters of all partitions, with an edge from each Send to its Recv,
    have no cycle.
    """
    verify_stages(flows)
    nodes = [n for flow in flows for n in flow.nodes]
    sends = {key_of(n.attrs): n for n in nodes if is_send(n)}
    before = {n: {*(v.producer for v in n.inputs), *n.controls} & set(nodes) for n in nodes}
    for node in nodes:
        if is_recv(node):
            before[node].add(sends[key_of(node.attrs)])
    list(TopologicalSorter(before).static_order())  # raises a CycleError
