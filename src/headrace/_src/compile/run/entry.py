"""The native driver: generated code that runs a cluster's calls. In: a target. Out: a module.

One function serves all clusters: `enter`, a Python method (METH_FASTCALL) whose arguments are the
arrays of a step and whose `self` is an array of words, the *header* of an instance of a cluster
(see `words.Header`). It checks each array against what the plan expects, puts the arrays' addresses
where the kernels look for them, releases the GIL if the header says so, and runs the calls in
phases (see `phases`):

    segment of kind TEAM      by a team of threads that share the segment's phases (see `team`)
    segment of kind ALONE     small kernels, by the calling thread
    segment of kind FOREIGN   `i64 f(user, args)` by the calling thread; other than 0 is a failure
    segment of kind JUMP      go on at another segment

A segment may also contain jumps between its phases. A jump with a flag is taken only when the flag
is 0. At a jump the task counters are reset, for loops, and a fault ends the step.

It returns None, or the status of a step that did not complete, or raises an exception of a signal's
handler. The status is FIRST_ARRAY plus the position of a refused array, OUTSIDE for an index out of
range, or the negative number that a foreign call returned.

Before each long phase, the thread that publishes it looks at the cancel word. Only the calling
thread can let Python handle signals: it does so at intervals, while it has no share, so that Ctrl-C
stops a long step at the next phase.
"""

from __future__ import annotations

from headrace._src.compile.codegen.emit import I1, I32, I64, PTR, VOID, Function, Module, Reg, Type
from headrace._src.compile.run.header_words import (
    FIRST_ARRAY,
    FOREIGN,
    IDLE,
    INTERRUPTED,
    JUMP,
    NEVER,
    OUTSIDE,
    TEAM,
    Header,
    PhaseWord,
    RowWord,
    after_jump,
    clock,
    get,
    get_pointer,
    is_stopped,
    is_taken,
    phase_at,
    put,
    reset_counters,
    row_at,
    stop,
    stop_if_asked,
)
from headrace._src.compile.run.team_functions import TeamFunctions
from headrace._src.devices.target import Target

__all__ = [
    "DATA_FIELD",
    "DTYPE_FIELD",
    "FLAGS_FIELD",
    "NDIM_FIELD",
    "SHAPE_FIELD",
    "TYPE_FIELD",
    "driver_text",
]

# CPython's object header and NumPy's array struct, in bytes; `driver` checks them before use.
TYPE_FIELD, DATA_FIELD, NDIM_FIELD, SHAPE_FIELD, DTYPE_FIELD, FLAGS_FIELD = 8, 16, 24, 32, 56, 64


def driver_text(symbol: str, target: Target) -> str:
    """The module whose external function `symbol` is `enter`."""
    module = Module(target)
    _enter(module, symbol, _step(module, TeamFunctions(module)))
    return str(module)


def _step(module: Module, team: TeamFunctions) -> Function:
    """step(header): run all segments, on the calling thread and its team."""
    f = module.function("step", [PTR], noalias=False)
    (header,) = f.parameters
    reset_counters(f, header)
    now = clock(f)
    for word, value in ((Header.STOP, NEVER), (Header.STATUS, 0), (Header.RAISED, 0)):
        put(f, header, word, value)
    for word in (Header.LOOKED, Header.STARTED):
        put(f, header, word, now)
    threads = get(f, header, Header.THREADS)

    def pause(phase: Reg) -> None:
        f.call_function(team.look, header)
        stop_if_asked(f, header, phase)

    def call_foreign(first: Reg, end: Reg) -> None:
        def visit(number: Reg) -> Reg:
            row = row_at(f, header, f.load(I64, phase_at(f, header, number), PhaseWord.FIRST))
            function, user, arguments = (
                f.load(PTR, row, word)
                for word in (RowWord.FUNCTION, RowWord.USER, RowWord.ARGUMENTS)
            )
            status = f.call_pointer(function, I64, user, arguments)
            f.store(clock(f), row, RowWord.ENDED)
            following = f.add(number, 1)
            f.when(f.icmp("ne", following, end), lambda: pause(following))
            f.when(f.icmp("ne", status, 0), lambda: stop(f, header, status, 0))
            return f.select(is_stopped(f, header), end, following)

        f.repeat(lambda number: f.icmp("slt", number, end), visit, [first])

    def call_team(kind: Reg, first: Reg) -> None:
        by_team = f.and_(f.icmp("eq", kind, TEAM), f.icmp("sgt", threads, 1))
        by_one = f.convert("zext", f.xor(by_team, f.const(1, I1)), I64)
        found = f.call_function(team.go_on, header, first, 0, by_one)
        f.when(f.icmp("ne", found, IDLE), lambda: f.call_function(team.work, header, found))

    def jump(number: Reg, phase_number: Reg, target: Reg) -> Reg:
        phase = phase_at(f, header, phase_number)
        row = row_at(f, header, f.load(I64, phase, PhaseWord.FIRST))
        taken = is_taken(f, row, f.load(I64, phase, PhaseWord.HOW))
        pause(phase_number)
        after_jump(f, header)
        following = f.select(taken, target, f.add(number, 1))
        return f.select(is_stopped(f, header), count, following)

    def run(number: Reg) -> Reg:
        segment = f.offset(get_pointer(f, header, Header.SEGMENTS), f.mul(number, 3), I64)
        kind, first, end = (f.load(I64, segment, i) for i in range(3))
        is_jump = f.icmp("eq", kind, JUMP)
        return f.when(
            is_jump, lambda: jump(number, first, end), lambda: work(number, kind, first, end)
        )[0]

    def work(number: Reg, kind: Reg, first: Reg, end: Reg) -> Reg:
        put(f, header, Header.END, end)
        is_foreign = f.icmp("eq", kind, FOREIGN)
        f.when(is_foreign, lambda: call_foreign(first, end), lambda: call_team(kind, first))
        following = f.add(number, 1)
        # A step that has ended can no longer be stopped.
        f.when(f.icmp("ne", following, count), lambda: pause(end))
        return f.select(is_stopped(f, header), count, following)

    count = get(f, header, Header.SEGMENT_COUNT)
    f.repeat(lambda number: f.icmp("slt", number, count), run, [f.reg(0)])
    # An exception may have been raised while others finished the last phase.
    raised = f.icmp("ne", get(f, header, Header.RAISED), 0)
    f.when(raised, lambda: put(f, header, Header.STATUS, INTERRUPTED))
    return f.finish()


def _enter(module: Module, symbol: str, step: Function) -> Function:
    """enter(self, arrays, count): the method that Python calls."""
    f = module.function(symbol, [PTR, PTR, I64], PTR, internal=False, noalias=False)
    itself, arrays, count = f.parameters
    header = _field(f, PTR, itself, DATA_FIELD)
    fits = f.icmp("eq", count, get(f, header, Header.ARRAY_COUNT))

    def number(status: Reg) -> Reg:
        return f.call("PyLong_FromLongLong", PTR, status)

    def run() -> Reg:
        (refused,) = _check_arrays(f, header, arrays)
        (refused,) = f.when(
            f.icmp("eq", refused, 0),
            lambda: _check_limits(f, header, arrays),
            lambda: refused,
        )
        return f.when(f.icmp("eq", refused, 0), run_checked, lambda: number(refused))[0]

    def run_checked() -> Reg:
        _patch(f, header, arrays)
        release = f.icmp("ne", get(f, header, Header.RELEASE), 0)
        f.when(release, run_released, run_holding)
        status = get(f, header, Header.STATUS)
        return f.when(f.icmp("eq", status, 0), none, lambda: failed(status))[0]

    def run_holding() -> None:
        f.call_function(step, header)

    def run_released() -> None:
        f.store(f.call("PyEval_SaveThread", PTR), header, int(Header.STATE))
        f.call_function(step, header)
        f.call("PyEval_RestoreThread", VOID, get_pointer(f, header, Header.STATE))
        put(f, header, Header.STATE, 0)

    def failed(status: Reg) -> Reg:
        interrupted = f.icmp("eq", status, INTERRUPTED)
        return f.when(interrupted, lambda: f.const(0, PTR), lambda: number(status))[0]

    def none() -> Reg:
        address = get_pointer(f, header, Header.NONE)
        f.call("Py_IncRef", VOID, address)
        return address

    (result,) = f.when(fits, run, lambda: number(f.reg(FIRST_ARRAY)))
    return f.finish(result)


def _field(f: Function, type: Type, pointer: Reg, offset: int) -> Reg:
    """A field of a C struct, `offset` bytes behind its start."""
    return f.load(type, pointer, offset * 8 // type.bits)


def _check_arrays(f: Function, header: Reg, arrays: Reg) -> list[Reg]:
    """0, or FIRST_ARRAY plus the position of an array that isn't what the plan expects."""
    table = get_pointer(f, header, Header.ARRAYS)
    array_type = get(f, header, Header.ARRAY_TYPE)
    no = f.const(0, I1)

    def fits(array: Reg, row: Reg) -> Reg:
        dtype, elements, flags = (f.load(I64, row, i) for i in range(3))
        shape = _field(f, PTR, array, SHAPE_FIELD)
        rank = f.convert("sext", _field(f, I32, array, NDIM_FIELD), I64)
        (found,) = f.loop(0, rank, lambda i, total: f.mul(total, f.load(I64, shape, i)), [f.reg(1)])
        has = f.convert("zext", _field(f, I32, array, FLAGS_FIELD), I64)
        result = f.icmp("eq", _field(f, I64, array, DTYPE_FIELD), dtype)
        result = f.and_(result, f.icmp("eq", found, elements))
        return f.and_(result, f.icmp("eq", f.and_(has, flags), flags))

    def check(i: Reg, refused: Reg) -> Reg:
        array, row = f.load(PTR, arrays, i), f.offset(table, f.mul(i, 3), I64)
        is_array = f.icmp("eq", _field(f, I64, array, TYPE_FIELD), array_type)
        # Another object may be too short to be looked at.
        (good,) = f.when(is_array, lambda: fits(array, row), lambda: no)
        return f.select(good, refused, f.add(i, FIRST_ARRAY))

    return f.loop(0, get(f, header, Header.ARRAY_COUNT), check, [f.reg(0)])


def _check_limits(f: Function, header: Reg, arrays: Reg) -> list[Reg]:
    """0, or OUTSIDE if an index isn't in [0, limit)."""
    table = get_pointer(f, header, Header.LIMITS)

    def outside(data: Reg, type: Type, elements: Reg, limit: Reg) -> Reg:
        lanes = f.target.vector_bytes * 8 // type.bits
        limit = limit if type == I64 else f.convert("trunc", limit, type)
        whole = f.and_(elements, -lanes)

        # As unsigned numbers, negative ones are the largest.
        def vector(i: Reg, found: Reg) -> Reg:
            values = f.load(type.of(lanes), data, i)
            return f.or_(found, f.icmp("uge", values, f.splat(limit, lanes)))

        def single(i: Reg, found: Reg) -> Reg:
            return f.or_(found, f.icmp("uge", f.load(type, data, i), limit))

        none = f.splat(f.const(0, I1), lanes)
        (found,) = f.loop(0, whole, vector, [none], step=lanes)
        (found,) = f.loop(whole, elements, single, [f.reduce("or", found)])
        return found

    def check(i: Reg, status: Reg) -> Reg:
        row = f.offset(table, f.mul(i, 4), I64)
        position, size, elements, limit = (f.load(I64, row, j) for j in range(4))
        data = _field(f, PTR, f.load(PTR, arrays, position), DATA_FIELD)
        (found,) = f.when(
            f.icmp("eq", size, 4),
            lambda: outside(data, I32, elements, limit),
            lambda: outside(data, I64, elements, limit),
        )
        return f.select(found, OUTSIDE, status)

    return f.loop(0, get(f, header, Header.LIMIT_COUNT), check, [f.reg(0)])


def _patch(f: Function, header: Reg, arrays: Reg) -> None:
    """Write the arrays' addresses into the argument tables."""
    table = get_pointer(f, header, Header.PATCHES)

    def patch(i: Reg) -> None:
        row = f.offset(table, f.mul(i, 2), I64)
        array = f.load(PTR, arrays, f.load(I64, row, 0))
        f.store(_field(f, PTR, array, DATA_FIELD), f.load(PTR, row, 1))

    f.loop(0, get(f, header, Header.PATCH_COUNT), patch)
