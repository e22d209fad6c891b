"""Check partitions and their programs: each raises an InternalError about the first fault."""

from __future__ import annotations

from headrace._src.core.errors import InternalError
from headrace._src.graph.dataflow import Dataflow, Node
from headrace._src.graph.partition import PartitionedProgram, Partitions
from headrace._src.graph.program import Program
from headrace._src.graph.state_sources import is_source
from headrace._src.graph.verify_flow import verify_dataflow, verify_program
from headrace._src.ops.base.transfers import is_recv, is_send, is_transfer, key_of
from headrace._src.partition.stages import verify_stages

__all__ = ["verify_partitions", "verify_programs"]


def verify_partitions(step: Dataflow | Partitions) -> None:
    """Check that each partition is a flow of nodes on its device, that each key is sent once and
    received once, and that the partitions' orders agree with the order of the whole step, in which
    each Send comes before its Recv: then neither clusters nor other nodes can wait in a circle.
    """
    if isinstance(step, Dataflow):
        verify_dataflow(step)
        return
    sent: dict[object, Node] = {}
    received: dict[object, Node] = {}
    for part in step.parts:
        verify_dataflow(part.flow)
        last = -1
        for node in part.flow.nodes:
            if node.constant is not None:
                continue
            if node.device != part.device and not is_source(node):
                raise _wrong(f"{node.name} on {node.device} is in the partition of {part.device}")
            if is_transfer(node):
                raise _wrong(f"{node.name} was not cut")
            here = step.positions[node]
            if here < last:
                raise _wrong(f"{node.name} is not in the order of the step")
            last = here
            for found, mine in ((sent, is_send(node)), (received, is_recv(node))):
                if mine and found.setdefault(key_of(node.attrs), node) is not node:
                    raise _wrong(f"{key_of(node.attrs)} is used twice")
    if sent.keys() != received.keys():
        raise _wrong(f"{sent.keys() ^ received.keys()} are sent or received, but not both")
    verify_stages(part.flow for part in step.parts)
    for key, recv in received.items():
        if step.positions[sent[key]] >= step.positions[recv]:
            raise _wrong(f"{key} is received before it is sent")


def verify_programs(program: Program | PartitionedProgram) -> None:
    """Check each program (see verify_program)."""
    if isinstance(program, Program):
        verify_program(program)
        return
    for each in (*program.programs, program.joined):
        if each is not None:
            verify_program(each)


def _wrong(message: str) -> InternalError:
    return InternalError(None, None, message)
