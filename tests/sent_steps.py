"""Steps that went through messages, for tests: what a session runs is what decode_flow returns."""

from contextlib import contextmanager
from unittest import mock

from headrace._src.core import proto
from headrace._src.graph.flow_def import decode_flow, encode_flow
from headrace._src.graph.graph import Graph
from headrace._src.session import specialisations


def sent(flow):
    """Return a flow as another process gets it: nothing of this graph is left in it."""
    data = encode_flow(flow).SerializeToString()
    decoded = decode_flow(proto.GraphDef.FromString(data), Graph())
    assert str(decoded) == str(flow)
    assert encode_flow(decoded).SerializeToString(deterministic=True) == encode_flow(
        flow
    ).SerializeToString(deterministic=True)
    return decoded


@contextmanager
def steps_are_sent():
    """Let sessions run steps that were encoded and decoded; yield the list of them."""
    seen = []

    def through(finish):
        def run(flow, *args, **kwargs):
            seen.append(flow)
            return finish(sent(flow), *args, **kwargs)

        return run

    with (
        mock.patch.object(specialisations, "finish", through(specialisations.finish)),
        mock.patch.object(specialisations, "finish_as_is", through(specialisations.finish_as_is)),
    ):
        yield seen
