"""The native driver: generated code that walks a cluster's calls. In: a target. Out: a module.

One function serves all clusters: `enter`, a Python method (METH_FASTCALL) whose arguments are the
arrays of a step and whose `self` is an array of words, the *header* of an instance of a cluster
(see `Header`). It checks each array against what the plan expects, puts the arrays' addresses
where the kernels look for them, lets go of the GIL if the header says so, and runs the calls:

    segment of kind TEAM      in one parallel region: all threads walk the segment's calls and meet
                              at a barrier before each call that asks for one
    segment of kind ALONE     small kernels, by the calling thread, without a region
    segment of kind FOREIGN   `i64 f(user, args)` by the calling thread; other than 0 is a failure
    segment of kind JUMP      go on at another segment

A jump may also stand among the calls of a segment: then all threads follow it, together. If it has
a flag, it's followed only when that is 0; task counters begin anew, for loops; a fault ends all.

It returns None; or a number, the status of a step that did not end (a refused array is FIRST_ARRAY
plus its position, OUTSIDE an index that is none, a foreign call's failure the negative number that
it returned); or an exception that a signal's handler raised.

Between calls the calling thread looks at the cancel word and, now and then, lets Python handle its
signals: Ctrl-C stops a step of many seconds at the next call. What stops it is written as the
number of the first call that is not to be run: a slow thread that reads it one call too early must
still go on to the barrier where the others wait.
"""

from __future__ import annotations

from enum import IntEnum

from headrace.compile.emit import I1, I8, I32, I64, PTR, VOID, Function, Module, Reg, Type
from headrace.compile.kernel import BARRIER, COUNTER_STRIDE
from headrace.devices.target import Target

__all__ = [
    "ALONE",
    "ALWAYS",
    "CALL_WORDS",
    "CANCELLED",
    "FAULTED",
    "FIRST_ARRAY",
    "FOREIGN",
    "JUMP",
    "JUMPS",
    "NEEDS_BARRIER",
    "ON_MASTER",
    "OUTSIDE",
    "TEAM",
    "Header",
    "driver_text",
]


class Header(IntEnum):
    """Words at the head of an instance. Tables are addresses of further words."""

    SEGMENTS = 0  # table of (kind, first call, end; for a jump the segment that it leads to)
    SEGMENT_COUNT = 1
    CALLS = 2  # table of (function, address of its argument table, flags, user, time of its end)
    COUNTERS = 3  # the kernels' task counters, zeroed before a step
    COUNTER_COUNT = 4
    THREADS = 5
    RELEASE = 6  # whether to let go of the GIL
    CANCEL = 7  # address of a word that stops the step when it is not 0
    NONE = 8  # address of None
    ARRAY_TYPE = 9  # address of numpy.ndarray
    ARRAYS = 10  # table of (dtype's address, number of elements, flags) that arrays must have
    ARRAY_COUNT = 11
    PATCHES = 12  # table of (array's position, address of the word that takes its address)
    PATCH_COUNT = 13
    TICKS = 14  # how many ticks of the clock between two looks at signals
    # Written by the driver:
    FIRST = 15  # the running segment's calls
    END = 16
    STOP = 17  # the first call that is not to be run
    STATUS = 18
    LOOKED = 19  # when signals were last looked at
    STATE = 20  # Python's thread state while the GIL is released, else 0
    STARTED = 21  # when the step began
    # Set by whoever profiles:
    TIMED = 22  # whether to note when each call ended
    ZERO = 23  # a word that stays 0: what CANCEL points to by default
    FAULT = 24  # address of a word that kernels set when something is wrong
    LIMITS = 25  # table of (array's position, bytes of an element, elements, limit): of indices
    LIMIT_COUNT = 26
    SIZE = 27


TEAM, ALONE, FOREIGN, JUMP = range(4)
# Flags of a call. A jump's `user` is the call that it leads to; ALWAYS: it has no flag to look at.
NEEDS_BARRIER, ON_MASTER, ALWAYS, JUMPS = 1, 2, 4, 8
CALL_WORDS = 5
_FUNCTION, _ARGUMENTS, _FLAGS, _USER, _ENDED = range(CALL_WORDS)

CANCELLED, INTERRUPTED, FAULTED, OUTSIDE = 1, 2, 3, 4  # statuses
FIRST_ARRAY = 16

_NEVER = 2**62

# CPython's object header and NumPy's array struct, in bytes; `driver` checks them before use.
TYPE_FIELD, DATA_FIELD, NDIM_FIELD, SHAPE_FIELD, DTYPE_FIELD, FLAGS_FIELD = 8, 16, 24, 32, 56, 64


def driver_text(symbol: str, target: Target) -> str:
    """The module whose external function `symbol` is `enter`."""
    module = Module(target)
    pause = _pause(module)
    walk = _walk(module, pause)
    step = _step(module, walk, _region(module, walk), pause)
    _enter(module, symbol, step)
    return str(module)


def _get(f: Function, header: Reg, word: Header) -> Reg:
    return f.load(I64, header, int(word))


def _get_pointer(f: Function, header: Reg, word: Header) -> Reg:
    return f.load(PTR, header, int(word))


def _set(f: Function, header: Reg, word: Header, value: Reg | int) -> None:
    f.store(f.reg(value), header, int(word))


def _clock(f: Function) -> Reg:
    """A counter that goes on at a constant rate: x86's and ARM's are readable by anyone."""
    name = "readcyclecounter" if f.target.triple.startswith("x86") else "readsteadycounter"
    return f.call(f"llvm.{name}", I64)


def _call_record(f: Function, header: Reg, number: Reg) -> Reg:
    return f.offset(_get_pointer(f, header, Header.CALLS), f.mul(number, CALL_WORDS), I64)


def _pause(module: Module) -> Function:
    """pause(header, next): on the calling thread, see whether the step must stop before `next`."""
    f = module.function("pause", [PTR, I64], noalias=False)
    header, following = f.parameters

    def stop(status: int) -> None:
        _set(f, header, Header.STATUS, status)
        _set(f, header, Header.STOP, following)

    def look_at_signals() -> None:
        _set(f, header, Header.LOOKED, now)
        f.call("PyEval_RestoreThread", VOID, _get_pointer(f, header, Header.STATE))
        raised = f.call("PyErr_CheckSignals", I32)
        f.store(f.call("PyEval_SaveThread", PTR), header, int(Header.STATE))
        f.when(f.icmp("ne", raised, 0), lambda: stop(INTERRUPTED))

    cancel = f.load(I64, _get_pointer(f, header, Header.CANCEL))
    f.when(f.icmp("ne", cancel, 0), lambda: stop(CANCELLED))
    now = _clock(f)
    since = f.wrapping("sub", now, _get(f, header, Header.LOOKED))
    due = f.icmp("ugt", since, _get(f, header, Header.TICKS))
    released = f.icmp("ne", _get(f, header, Header.STATE), 0)
    f.when(f.and_(due, released), look_at_signals)
    return f.finish()


def _walk(module: Module, pause: Function) -> Function:
    """walk(header, thread, threads): one thread's way through the calls of the running segment."""
    f = module.function("walk", [PTR, I64, I64], noalias=False)
    header, thread, threads = f.parameters
    is_master = f.icmp("eq", thread, 0)
    has_others = f.icmp("ne", threads, 1)
    first, end = _get(f, header, Header.FIRST), _get(f, header, Header.END)
    noting = f.and_(is_master, f.icmp("ne", _get(f, header, Header.TIMED), 0))
    zero, one = f.reg(0), f.reg(1)

    def meet(number: Reg) -> None:
        f.when(is_master, lambda: f.call_function(pause, header, number))
        f.when(has_others, lambda: f.call(BARRIER, VOID))

    def run(call: Reg, small: Reg) -> None:
        function, arguments = f.load(PTR, call, _FUNCTION), f.load(PTR, call, _ARGUMENTS)

        def by_master() -> None:
            f.when(is_master, lambda: f.call_pointer(function, VOID, arguments, zero, one))

        def by_all() -> None:
            f.call_pointer(function, VOID, arguments, thread, threads)

        f.when(small, by_master, by_all)
        f.when(noting, lambda: f.store(_clock(f), call, _ENDED))

    def jump(number: Reg, call: Reg, flags: Reg) -> Reg:
        meet(number)
        taken = _is_taken(f, call, flags)
        f.when(is_master, lambda: _begin_anew(f, header))
        f.when(has_others, lambda: f.call(BARRIER, VOID))
        stopped = f.icmp("ne", _get(f, header, Header.STOP), _NEVER)
        following = f.select(taken, f.load(I64, call, _USER), f.add(number, 1))
        return f.select(stopped, end, following)

    def visit(number: Reg) -> Reg:
        call = _call_record(f, header, number)
        flags = f.load(I64, call, _FLAGS)
        is_jump = f.icmp("ne", f.and_(flags, JUMPS), 0)
        return f.when(
            is_jump, lambda: jump(number, call, flags), lambda: work(number, call, flags)
        )[0]

    def work(number: Reg, call: Reg, flags: Reg) -> Reg:
        small = f.icmp("ne", f.and_(flags, ON_MASTER), 0)
        wanted = f.icmp("ne", f.and_(flags, NEEDS_BARRIER), 0)
        # One thread that runs small calls has nobody to meet, and no time to look around.
        wanted = f.and_(wanted, f.or_(has_others, f.xor(small, f.const(1, I1))))
        f.when(f.and_(wanted, f.icmp("ne", number, first)), lambda: meet(number))
        going_on = f.icmp("slt", number, _get(f, header, Header.STOP))
        f.when(going_on, lambda: run(call, small))
        return f.select(going_on, f.add(number, 1), end)

    f.repeat(lambda number: f.icmp("slt", number, end), visit, [first])
    return f.finish()


def _is_taken(f: Function, call: Reg, flags: Reg) -> Reg:
    """Whether a jump is to be followed."""
    always = f.icmp("ne", f.and_(flags, ALWAYS), 0)
    flag = f.load(I8, f.load(PTR, f.load(PTR, call, _ARGUMENTS), 0))
    return f.or_(always, f.icmp("eq", flag, f.const(0, I8)))


def _begin_anew(f: Function, header: Reg) -> None:
    """By one thread, between two parts of a loop: reset task counters, and end after a fault."""
    _reset_counters(f, header)

    def end() -> None:
        _set(f, header, Header.STATUS, FAULTED)
        _set(f, header, Header.STOP, 0)

    fault = f.load(I64, _get_pointer(f, header, Header.FAULT))
    f.when(f.icmp("ne", fault, 0), end)


def _reset_counters(f: Function, header: Reg) -> None:
    counters, zero = _get_pointer(f, header, Header.COUNTERS), f.reg(0)
    f.loop(
        0,
        _get(f, header, Header.COUNTER_COUNT),
        lambda i: f.store(zero, counters, f.mul(i, COUNTER_STRIDE)),
    )


def _region(module: Module, walk: Function) -> Function:
    """region(header): what each thread of a parallel region runs."""
    f = module.function("region", [PTR], noalias=False)
    thread = f.convert("sext", f.call("omp_get_thread_num", I32), I64)
    threads = f.convert("sext", f.call("omp_get_num_threads", I32), I64)
    f.call_function(walk, f.parameters[0], thread, threads)
    return f.finish()


def _step(module: Module, walk: Function, region: Function, pause: Function) -> Function:
    """step(header): run all segments, on the calling thread and its team."""
    f = module.function("step", [PTR], noalias=False)
    (header,) = f.parameters
    _reset_counters(f, header)
    now = _clock(f)
    for word, value in ((Header.STOP, _NEVER), (Header.STATUS, 0)):
        _set(f, header, word, value)
    for word in (Header.LOOKED, Header.STARTED):
        _set(f, header, word, now)
    threads = _get(f, header, Header.THREADS)

    def call_foreign(first: Reg, end: Reg) -> None:
        def visit(number: Reg) -> Reg:
            call = _call_record(f, header, number)
            user, arguments = f.load(PTR, call, _USER), f.load(PTR, call, _ARGUMENTS)
            status = f.call_pointer(f.load(PTR, call, _FUNCTION), I64, user, arguments)
            f.store(_clock(f), call, _ENDED)
            following = f.add(number, 1)
            more = f.icmp("ne", following, end)
            f.when(more, lambda: f.call_function(pause, header, following))
            f.when(f.icmp("ne", status, 0), lambda: fail(status))
            return f.select(f.icmp("sle", _get(f, header, Header.STOP), following), end, following)

        def fail(status: Reg) -> None:
            _set(f, header, Header.STATUS, status)
            _set(f, header, Header.STOP, 0)

        f.repeat(lambda number: f.icmp("slt", number, end), visit, [first])

    def call_team(kind: Reg) -> None:
        def open_region() -> None:
            body = Reg(f"@{region.name}", PTR)
            count = f.convert("trunc", threads, I32)
            f.call("GOMP_parallel", VOID, body, header, count, f.reg(0, I32))

        by_team = f.and_(f.icmp("eq", kind, TEAM), f.icmp("sgt", threads, 1))
        f.when(by_team, open_region, walk_alone)

    def walk_alone() -> None:
        f.call_function(walk, header, 0, 1)

    def jump(number: Reg, call_number: Reg, target: Reg) -> Reg:
        call = _call_record(f, header, call_number)
        taken = _is_taken(f, call, f.load(I64, call, _FLAGS))
        f.call_function(pause, header, call_number)
        _begin_anew(f, header)
        stopped = f.icmp("ne", _get(f, header, Header.STOP), _NEVER)
        return f.select(stopped, count, f.select(taken, target, f.add(number, 1)))

    def run(number: Reg) -> Reg:
        row = f.offset(_get_pointer(f, header, Header.SEGMENTS), f.mul(number, 3), I64)
        kind, first, end = (f.load(I64, row, i) for i in range(3))
        is_jump = f.icmp("eq", kind, JUMP)
        return f.when(
            is_jump, lambda: jump(number, first, end), lambda: work(number, kind, first, end)
        )[0]

    def work(number: Reg, kind: Reg, first: Reg, end: Reg) -> Reg:
        _set(f, header, Header.FIRST, first)
        _set(f, header, Header.END, end)
        is_foreign = f.icmp("eq", kind, FOREIGN)
        f.when(is_foreign, lambda: call_foreign(first, end), lambda: call_team(kind))
        following = f.add(number, 1)
        # A step that has ended can't be stopped any more.
        f.when(f.icmp("ne", following, count), lambda: f.call_function(pause, header, end))
        stopped = f.icmp("sle", _get(f, header, Header.STOP), end)
        return f.select(stopped, count, following)

    count = _get(f, header, Header.SEGMENT_COUNT)
    f.repeat(lambda number: f.icmp("slt", number, count), run, [f.reg(0)])
    return f.finish()


def _enter(module: Module, symbol: str, step: Function) -> Function:
    """enter(self, arrays, count): the method that Python calls."""
    f = module.function(symbol, [PTR, PTR, I64], PTR, internal=False, noalias=False)
    itself, arrays, count = f.parameters
    header = _field(f, PTR, itself, DATA_FIELD)
    fits = f.icmp("eq", count, _get(f, header, Header.ARRAY_COUNT))

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
        release = f.icmp("ne", _get(f, header, Header.RELEASE), 0)
        f.when(release, run_released, run_holding)
        status = _get(f, header, Header.STATUS)
        return f.when(f.icmp("eq", status, 0), none, lambda: failed(status))[0]

    def run_holding() -> None:
        f.call_function(step, header)

    def run_released() -> None:
        f.store(f.call("PyEval_SaveThread", PTR), header, int(Header.STATE))
        f.call_function(step, header)
        f.call("PyEval_RestoreThread", VOID, _get_pointer(f, header, Header.STATE))
        _set(f, header, Header.STATE, 0)

    def failed(status: Reg) -> Reg:
        interrupted = f.icmp("eq", status, INTERRUPTED)
        return f.when(interrupted, lambda: f.const(0, PTR), lambda: number(status))[0]

    def none() -> Reg:
        address = _get_pointer(f, header, Header.NONE)
        f.call("Py_IncRef", VOID, address)
        return address

    (result,) = f.when(fits, run, lambda: number(f.reg(FIRST_ARRAY)))
    return f.finish(result)


def _field(f: Function, type: Type, pointer: Reg, offset: int) -> Reg:
    """A field of a C struct, `offset` bytes behind its start."""
    return f.load(type, pointer, offset * 8 // type.bits)


def _check_arrays(f: Function, header: Reg, arrays: Reg) -> list[Reg]:
    """0, or FIRST_ARRAY plus the position of an array that isn't what the plan expects."""
    table = _get_pointer(f, header, Header.ARRAYS)
    array_type = _get(f, header, Header.ARRAY_TYPE)
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

    return f.loop(0, _get(f, header, Header.ARRAY_COUNT), check, [f.reg(0)])


def _check_limits(f: Function, header: Reg, arrays: Reg) -> list[Reg]:
    """0, or OUTSIDE if an index isn't in [0, limit)."""
    table = _get_pointer(f, header, Header.LIMITS)

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

    return f.loop(0, _get(f, header, Header.LIMIT_COUNT), check, [f.reg(0)])


def _patch(f: Function, header: Reg, arrays: Reg) -> None:
    """Write the arrays' addresses into the argument tables."""
    table = _get_pointer(f, header, Header.PATCHES)

    def patch(i: Reg) -> None:
        row = f.offset(table, f.mul(i, 2), I64)
        array = f.load(PTR, arrays, f.load(I64, row, 0))
        f.store(_field(f, PTR, array, DATA_FIELD), f.load(PTR, row, 1))

    f.loop(0, _get(f, header, Header.PATCH_COUNT), patch)
