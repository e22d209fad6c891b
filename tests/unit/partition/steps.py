"""Placed steps in the forms that partitioning takes and makes."""

from headrace._src.devices.device import local_devices
from headrace._src.optimize.fold import hold_constants
from headrace._src.optimize.reads import read_variables
from headrace._src.partition.cut import cut
from headrace._src.partition.transfers import add_transfers, verify_transfers
from headrace._src.partition.verify import verify_partitions
from headrace._src.pipeline import Options, prepare

OPTIONS = Options(devices=local_devices({"CPU": 3}))
CPU = [device.name for device in OPTIONS.devices]


def placed(fetches, targets=(), feeds=()):
    """Return a prepared step on three devices."""
    return prepare(fetches, targets, feeds, OPTIONS)


def joined(fetches, targets=(), feeds=()):
    """Return a step whose transfers are explicit."""
    flow = add_transfers(hold_constants(placed(fetches, targets, feeds)))
    verify_transfers(flow)
    return flow


def parted(fetches, targets=(), feeds=()):
    """Return the partitions of a step."""
    flow = read_variables(joined(fetches, targets, feeds), ordered=True)
    parts = cut(flow)
    verify_partitions(parts)
    return parts


def partition(parts, number):
    """Return the nodes of a device, except constants."""
    (found,) = [p.flow for p in parts.parts if p.device == CPU[number]]
    return [node for node in found.nodes if node.constant is None]


def types(nodes):
    return [node.type for node in nodes]
