"""The words that the native driver and Python share: those of an instance of a cluster, and of the
team and the pool of threads that run it; and how generated code reads and writes them.
"""

from __future__ import annotations

import platform
from enum import IntEnum

from headrace._src.compile.codegen.emit import I1, I8, I64, PTR, VOID, Function, Reg
from headrace._src.compile.codegen.kernel_spec import COUNTER_STRIDE

# The clock's ticks in a fifth of a second, about.
TICKS = {"x86_64": 2**29}.get(platform.machine(), 2**24)

__all__ = [
    "ALONE", "CANCELLED", "FAULTED", "FIRST_ARRAY", "FOREIGN", "IDLE", "INTERRUPTED", "JUMP",
    "LINE", "NEVER", "NO_MEETING", "OUTSIDE", "PHASE_BITS", "TEAM", "TICKS", "Header",
    "HelperWord", "How", "PhaseWord", "PoolWord", "RowWord", "TeamWord", "after_jump", "clock",
    "get", "get_pointer", "is_stopped", "is_taken", "phase_at", "phase_of", "put",
    "reset_counters", "row_at", "rows_of", "run_share", "stop", "stop_if_asked",
]  # fmt: skip


class Header(IntEnum):
    """Words at the head of an instance. Tables are addresses of further words."""

    SEGMENTS = 0  # table of (kind, first phase, end; for a jump the segment that it leads to)
    SEGMENT_COUNT = 1
    ROWS = 2  # table of RowWord
    COUNTERS = 3  # the kernels' task counters, zeroed before a step
    COUNTER_COUNT = 4
    THREADS = 5  # how many shares there are
    RELEASE = 6  # whether to release the GIL
    CANCEL = 7  # address of a word that stops the step when it is not 0
    NONE = 8  # address of None
    ARRAY_TYPE = 9  # address of numpy.ndarray
    ARRAYS = 10  # table of (dtype's address, number of elements, flags) that arrays must have
    ARRAY_COUNT = 11
    PATCHES = 12  # table of (array's position, address of the word that takes its address)
    PATCH_COUNT = 13
    TICKS = 14  # how many ticks of the clock between two looks at signals
    # Written by the driver:
    END = 15  # of the running segment: the phase behind its last one
    STOP = 16  # the first phase that is not to be run
    STATUS = 17
    RAISED = 18  # whether a signal's handler raised an exception
    LOOKED = 19  # when signals were last checked
    STATE = 20  # Python's thread state while the GIL is released, else 0
    STARTED = 21  # when the step began
    # Set for profiling:
    TIMED = 22  # whether to record when each call ended
    ZERO = 23  # a word that stays 0: what CANCEL points to by default
    FAULT = 24  # address of a word that kernels set when something is wrong
    LIMITS = 25  # table of (array's position, bytes of an element, elements, limit): of indices
    LIMIT_COUNT = 26
    PHASES = 27  # table of PhaseWord
    CLAIMS = 28  # table of the tickets by which each row's shares were last claimed
    WORDS = 29  # what the team's threads share: TeamWord
    SPIN = 30  # for how many ticks of the clock a thread looks at CURRENT before it sleeps
    POOL = 31  # what the helpers share: PoolWord; 0 if there are none
    SIZE = 32


class RowWord(IntEnum):
    """Words of a row, which is one native call by the driver (see `phases`): the function, the
    address of its arguments, the meeting that it follows, the number of shares; the user data of a
    foreign function; when it ended, if that is recorded.
    """

    FUNCTION, ARGUMENTS, MEETING, SHARES, USER, ENDED, SIZE = range(7)


class PhaseWord(IntEnum):
    """Words of a phase: how it's run, its rows, how many shares they have; of a jump, the phase
    that it leads to.
    """

    HOW, FIRST, END, SHARES, TARGET, SIZE = range(6)


class How(IntEnum):
    """How a phase is run: the team shares its rows; one thread runs them, because they are small;
    it's a jump that is taken if its flag is 0; it's a jump that is always taken.
    """

    SHARED, SMALL, UNLESS, ALWAYS = range(4)


LINE = 8  # words of a cache line: words that different threads write lie in different lines


class TeamWord(IntEnum):
    """Words that the threads of an instance share: the ticket of the current phase (a turn, and the
    phase in its lowest bits), the number of sleeping threads, the number of unfinished shares.
    """

    CURRENT, SLEEPERS, LEFT, SIZE = (LINE * i for i in range(4))


class PoolWord(IntEnum):
    """Words that all helpers share: a number that changes when there is work, the number of
    sleeping helpers, the header of the instance that has work (or 0). The helpers' own words
    follow.
    """

    BELL, SLEEPERS, OWNER, SIZE = (LINE * i for i in range(4))


class HelperWord(IntEnum):
    """A helper's own words: the header of the instance that it may be looking at (or 0), its number
    in a team, the address of the pool, the ticks for which it looks at the bell before it sleeps.
    """

    INSIDE, NUMBER, POOL, SPIN = range(4)


PHASE_BITS = 20  # of a ticket
IDLE = 2**PHASE_BITS - 1  # in the place of a phase: there is nothing to do
NO_MEETING = -1  # of a serial kernel, whose function takes none

TEAM, ALONE, FOREIGN, JUMP = range(4)  # kinds of segments
CANCELLED, INTERRUPTED, FAULTED, OUTSIDE = 1, 2, 3, 4  # statuses
FIRST_ARRAY = 16
NEVER = 2**62


def get(f: Function, header: Reg, word: Header) -> Reg:
    return f.load(I64, header, int(word))


def get_pointer(f: Function, header: Reg, word: Header) -> Reg:
    return f.load(PTR, header, int(word))


def put(f: Function, header: Reg, word: Header, value: Reg | int) -> None:
    f.store(f.reg(value), header, int(word))


def clock(f: Function) -> Reg:
    """Read a counter with a constant rate: x86's and ARM's are readable in user mode."""
    name = "readcyclecounter" if f.target.triple.startswith("x86") else "readsteadycounter"
    return f.call(f"llvm.{name}", I64)


def row_at(f: Function, header: Reg, number: Reg) -> Reg:
    return f.offset(get_pointer(f, header, Header.ROWS), f.mul(number, RowWord.SIZE), I64)


def phase_at(f: Function, header: Reg, number: Reg) -> Reg:
    return f.offset(get_pointer(f, header, Header.PHASES), f.mul(number, PhaseWord.SIZE), I64)


def phase_of(f: Function, ticket: Reg) -> Reg:
    return f.and_(ticket, IDLE)


def rows_of(f: Function, phase: Reg) -> tuple[Reg, Reg]:
    """The numbers of a phase's first row and of the one behind its last."""
    return f.load(I64, phase, PhaseWord.FIRST), f.load(I64, phase, PhaseWord.END)


def run_share(f: Function, header: Reg, row: Reg, share: Reg | int, shares: Reg | int) -> None:
    """Run one share of a row, and record when it ended."""
    function, arguments = f.load(PTR, row, RowWord.FUNCTION), f.load(PTR, row, RowWord.ARGUMENTS)

    meeting = f.load(I64, row, RowWord.MEETING)

    def serial() -> None:
        f.call_pointer(function, VOID, arguments, f.reg(0), f.reg(1))

    def shared() -> None:
        f.call_pointer(function, VOID, arguments, f.reg(share), f.reg(shares), meeting)

    f.when(f.icmp("eq", meeting, NO_MEETING), serial, shared)
    timed = f.icmp("ne", get(f, header, Header.TIMED), 0)
    f.when(timed, lambda: f.atomic_store(clock(f), row, RowWord.ENDED, "monotonic"))


def stop(f: Function, header: Reg, status: Reg | int, phase: Reg | int) -> None:
    """End the step before a phase. Only the thread that controls the step may call it."""
    put(f, header, Header.STATUS, status)
    put(f, header, Header.STOP, phase)


def stop_if_asked(f: Function, header: Reg, phase: Reg) -> None:
    """End the step before a phase if it was cancelled, or a signal's handler raised."""
    cancel = f.atomic_load(get_pointer(f, header, Header.CANCEL), 0, "monotonic")
    f.when(f.icmp("ne", cancel, 0), lambda: stop(f, header, CANCELLED, phase))
    raised = f.atomic_load(header, int(Header.RAISED))
    f.when(f.icmp("ne", raised, 0), lambda: stop(f, header, INTERRUPTED, phase))


def is_stopped(f: Function, header: Reg) -> Reg:
    return f.icmp("ne", get(f, header, Header.STOP), NEVER)


def is_taken(f: Function, row: Reg, how: Reg) -> Reg:
    """Return whether a jump is taken."""

    def is_zero() -> Reg:
        flag = f.load(I8, f.load(PTR, f.load(PTR, row, RowWord.ARGUMENTS), 0))
        return f.icmp("eq", flag, f.const(0, I8))

    return f.when(f.icmp("eq", how, How.ALWAYS), lambda: f.const(1, I1), is_zero)[0]


def after_jump(f: Function, header: Reg) -> None:
    """Write what follows a jump: reset the task counters, for loops, and end after a fault."""
    reset_counters(f, header)
    fault = f.load(I64, get_pointer(f, header, Header.FAULT))
    f.when(f.icmp("ne", fault, 0), lambda: stop(f, header, FAULTED, 0))


def reset_counters(f: Function, header: Reg) -> None:
    counters, zero = get_pointer(f, header, Header.COUNTERS), f.reg(0)
    f.loop(
        0,
        get(f, header, Header.COUNTER_COUNT),
        lambda i: f.store(zero, counters, f.mul(i, COUNTER_STRIDE)),
    )
