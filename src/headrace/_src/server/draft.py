from dataclasses import replace
from headrace._src.pipeline.passes import _run, hold_constants, read_variables, cut, verify_reads
from headrace._src.pipeline.schedule import schedule_flow
from headrace._src.graph.partition import *
from headrace._src.devices.device import _types
from headrace._src.graph.dataflow import Dataflow


def divide(step, options, specialised):
    if not specialised:
        step = _run("transfer", hold_constants(step), options)
        step = read_variables(step, ordered=True)
    import headrace._src.partition.cut as c

    c.find_device = {d.name: d for d in options.devices}.__getitem__
    made = cut(step)
    if isinstance(made, Dataflow):
        device = made.devices[0] if made.devices else options.devices[0].name
        return Partitions(
            (Partition(device, made),),
            made.feeds,
            made.tensors,
            tuple((0, i) for i in range(len(made.fetches))),
        )
    return made


def finish_partitions(parts, feeds, sources, options, compiled):
    programs = tuple(replace(schedule_flow(f), specialised=False) for _, f in parts)
    return PartitionedProgram(tuple(d for d, _ in parts), programs, feeds, sources)


def brief(program):
    return all(
        (v.type.size or 0) < 1 << 16
        for p in program.programs
        for i in p.instructions
        for v in i.op.outputs
    )


def task_devices(task, incarnation, counts):
    found = []
    for kind, known in _types.items():
        count = counts.get(kind, known.count)
        count = max(count, 1) if kind == "CPU" else count
        for i in range(count):
            d = known.make(f"{task}/device:{kind}:{i}")
            d.incarnation = incarnation
            found.append(d)
    return tuple(found)
