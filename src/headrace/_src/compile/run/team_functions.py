"""Generate the code by which a team of threads shares the phases of a step. In: a module. Out: its
functions for that.

**Work is claimed, not owned.** Each row of a phase has as many shares as there are threads (one, if
it's small); any thread may run any share. A thread first claims its own shares, whose data is in
its caches, and then shares that no other thread has claimed: a thread that the system doesn't
schedule delays the others only if it was suspended in the middle of a share. The thread that
finishes the last share of a phase advances to the next shared phase: it runs small phases, follows
jumps, checks whether the step must end, and publishes the phase. So one thread at a time controls
the step, and a thread that comes late joins the current phase.

The word CURRENT names the current phase. It's a *ticket*: a turn, which only grows, and the phase.
A thread claims a share by writing the ticket to the share's word in a table; a share whose word has
this ticket or a later one is taken. So nothing is ever reset, and a thread with an old ticket gets
no share.

**Helpers join if they can.** A step is over when its work is done, not when all threads know it.
The calling thread rings a bell and begins; helpers, threads of a pool that all clusters share, join
it when they are scheduled. There is one pool: while one step has it, steps on other threads do all
of their shares themselves. A helper first publishes which instance it looks at, and only then
checks whether that instance still needs help: so an instance that no helper looks at can be freed.
"""

from __future__ import annotations

from headrace._src.compile.codegen.emit import I1, I32, I64, PTR, VOID, Function, Module, Reg
from headrace._src.compile.run.header_words import (
    IDLE,
    LINE,
    PHASE_BITS,
    Header,
    HelperWord,
    How,
    PhaseWord,
    PoolWord,
    RowWord,
    TeamWord,
    after_jump,
    clock,
    get,
    get_pointer,
    is_stopped,
    is_taken,
    phase_at,
    phase_of,
    put,
    row_at,
    rows_of,
    run_share,
    stop_if_asked,
)
from headrace._src.devices.target import Target

__all__ = ["TeamFunctions", "helper_text"]

# Linux: the number of the system call, by architecture, and what it's asked for.
_FUTEX = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAKE = 128, 129  # within this process
_NAP = 0, 100_000_000  # seconds and nanoseconds after which a sleeping thread checks again
# A helper that spun in vain spins for a fraction of that time, for the next few times.
_SHORTER, _REST = 16, 32


class TeamFunctions:
    """The functions of a module by which threads run phases.

    look(header)                 on the calling thread, which alone may, let Python handle signals
                                 if it's time to
    go_on(header, phase, thread, by_one)
                                 from a phase on, run what one thread runs: small phases, or all of
                                 them (`by_one`), and jumps; returns the first phase for the team,
                                 or IDLE if there is none or the step was stopped
    work(header, phase)          on the calling thread, run the segment from a phase on, with help
    walk(header, thread)         run shares until there are no more phases
    wait(word, value, spin, nap)
                                 until a word has another value
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self.look = self._look()
        self.go_on = self._go_on()
        self._wake = self._write_wake()
        self.wait = self._write_wait()
        self._publish = self._write_publish()
        self._run_shares = self._write_run_shares()
        self.walk = self._walk()
        self.work = self._work()

    def _look(self) -> Function:
        f = self._module.function("look", [PTR], noalias=False)
        (header,) = f.parameters
        now = clock(f)

        def look_at_signals() -> None:
            put(f, header, Header.LOOKED, now)
            f.call("PyEval_RestoreThread", VOID, get_pointer(f, header, Header.STATE))
            raised = f.call("PyErr_CheckSignals", I32)
            f.store(f.call("PyEval_SaveThread", PTR), header, int(Header.STATE))
            f.when(f.icmp("ne", raised, 0), lambda: f.atomic_store(1, header, Header.RAISED))

        since = f.wrapping("sub", now, get(f, header, Header.LOOKED))
        due = f.icmp("ugt", since, get(f, header, Header.TICKS))
        released = f.icmp("ne", get(f, header, Header.STATE), 0)
        calm = f.icmp("eq", get(f, header, Header.RAISED), 0)
        f.when(f.and_(due, f.and_(released, calm)), look_at_signals)
        return f.finish()

    # -- Steering: by one thread at a time -------------------------------------------------------

    def _go_on(self) -> Function:
        f = self._module.function("go_on", [PTR, I64, I64, I64], I64, noalias=False)
        header, start, thread, by_one = f.parameters
        is_caller = f.icmp("eq", thread, 0)
        is_one = f.icmp("ne", by_one, 0)
        end = get(f, header, Header.END)
        no, yes = f.const(0, I1), f.const(1, I1)

        def pause(phase: Reg) -> None:
            f.when(is_caller, lambda: f.call_function(self.look, header))
            stop_if_asked(f, header, phase)

        def work(number: Reg, phase: Reg, how: Reg) -> list[Reg]:
            """The phase that this thread comes to, and whether it stays there."""
            is_small = f.icmp("eq", how, How.SMALL)
            # A thread that runs small phases does not check for signals.
            f.when(f.xor(is_small, yes), lambda: pause(number))
            return f.when(
                is_stopped(f, header),
                lambda: [end, yes],
                lambda: f.when(
                    f.or_(is_small, is_one), lambda: finish(number, phase), lambda: [number, yes]
                ),
            )

        def finish(number: Reg, phase: Reg) -> list[Reg]:
            first, last = rows_of(f, phase)
            f.loop(first, last, lambda i: run_share(f, header, row_at(f, header, i), 0, 1))
            return [f.add(number, 1), no]

        def jump(number: Reg, phase: Reg, how: Reg) -> list[Reg]:
            pause(number)
            taken = is_taken(f, row_at(f, header, f.load(I64, phase, PhaseWord.FIRST)), how)
            after_jump(f, header)
            following = f.select(taken, f.load(I64, phase, PhaseWord.TARGET), f.add(number, 1))
            return [f.select(is_stopped(f, header), end, following), no]

        def visit(number: Reg, _: Reg) -> list[Reg]:
            phase = phase_at(f, header, number)
            how = f.load(I64, phase, PhaseWord.HOW)
            return f.when(
                f.icmp("sge", how, How.UNLESS),
                lambda: jump(number, phase, how),
                lambda: work(number, phase, how),
            )

        def goes_on(number: Reg, stays: Reg) -> Reg:
            return f.and_(f.icmp("slt", number, end), f.icmp("eq", stays, no))

        number, _ = f.repeat(goes_on, visit, [start, no])
        return f.finish(f.select(f.icmp("slt", number, end), number, IDLE))

    def _write_publish(self) -> Function:
        """publish(header, phase): make a phase, or IDLE, what is current."""
        f = self._module.function("publish", [PTR, I64], noalias=False)
        header, phase = f.parameters
        words = get_pointer(f, header, Header.WORDS)

        def expect() -> None:
            shares = f.load(I64, phase_at(f, header, phase), PhaseWord.SHARES)
            f.atomic_store(shares, words, TeamWord.LEFT, "monotonic")

        f.when(f.icmp("ne", phase, IDLE), expect)
        ticket = f.atomic_load(words, TeamWord.CURRENT, "monotonic")
        turn = f.add(f.lshr(ticket, PHASE_BITS), 1)
        f.call_function(self._wake, words, f.or_(f.shl(turn, PHASE_BITS), phase))
        return f.finish()

    # -- Waiting ---------------------------------------------------------------------------------
    # Threads wait on a team's CURRENT and on the pool's BELL; the number of sleeping threads is one
    # cache line further. A thread that is about to sleep counts itself before it looks at the word
    # for the last time, and a thread that changes the word does so before it looks at the count.

    def _write_wake(self) -> Function:
        """wake(word, value): change a word, and wake the threads that sleep on it."""
        f = self._module.function("wake", [PTR, I64], noalias=False)
        word, value = f.parameters
        f.atomic_store(value, word, 0, "seq_cst")
        sleepers = f.atomic_load(word, LINE, "seq_cst")
        f.when(f.icmp("ne", sleepers, 0), lambda: _futex(f, word, _WAKE, f.reg(2**31 - 1)))
        return f.finish()

    def _write_wait(self) -> Function:
        """wait(word, value, spin, nap): spin for so many ticks, then sleep, until a word has
        another value, which is returned; or as long as `nap` says, if that isn't null.
        """
        f = self._module.function("wait", [PTR, I64, I64, PTR], I64, noalias=False)
        word, value, spin, nap = f.parameters
        start = clock(f)

        def look_again(*_: Reg) -> list[Reg]:
            f.relax()
            return [f.wrapping("sub", clock(f), start), f.atomic_load(word)]

        def unchanged(since: Reg, found: Reg) -> Reg:
            return f.and_(f.icmp("ult", since, spin), f.icmp("eq", found, value))

        def sleep() -> Reg:
            f.atomic_add(word, 1, LINE, "seq_cst")
            same = f.icmp("eq", f.atomic_load(word, 0, "seq_cst"), value)
            f.when(same, lambda: _futex(f, word, _WAIT, value, nap))
            f.atomic_add(word, -1, LINE, "seq_cst")
            return f.atomic_load(word)

        _, found = f.repeat(unchanged, look_again, [f.reg(0), f.atomic_load(word)])
        (found,) = f.when(f.icmp("eq", found, value), sleep, lambda: found)
        return f.finish(found)

    # -- Work ------------------------------------------------------------------------------------

    def _write_run_shares(self) -> Function:
        """run_shares(header, ticket, first, end): of the current phase's rows, run the unclaimed
        shares whose numbers are in [first, end). Returns how many these were.
        """
        f = self._module.function("run_shares", [PTR, I64, I64, I64], I64, noalias=False)
        header, ticket, first, end = f.parameters
        claims = get_pointer(f, header, Header.CLAIMS)
        threads = get(f, header, Header.THREADS)

        def claim(number: Reg, share: Reg) -> Reg:
            at = f.offset(claims, f.add(f.mul(number, threads), share), I64)
            before = f.atomic_load(at, 0, "monotonic")
            return f.when(
                f.icmp("slt", before, ticket),
                lambda: f.compare_exchange(at, before, ticket),
                lambda: f.const(0, I1),
            )[0]

        def visit_row(number: Reg, done: Reg) -> list[Reg]:
            row = row_at(f, header, number)
            shares = f.load(I64, row, RowWord.SHARES)

            def visit(share: Reg, done: Reg) -> list[Reg]:
                is_ours = claim(number, share)
                f.when(is_ours, lambda: run_share(f, header, row, share, shares))
                return [f.add(done, f.convert("zext", is_ours, I64))]

            return f.loop(first, f.minimum(end, shares), visit, [done])

        phase = phase_at(f, header, phase_of(f, ticket))
        (done,) = f.loop(*rows_of(f, phase), visit_row, [f.reg(0)])
        return f.finish(done)

    def _walk(self) -> Function:
        f = self._module.function("walk", [PTR, I64], noalias=False)
        header, thread = f.parameters
        words = get_pointer(f, header, Header.WORDS)
        threads, spin = get(f, header, Header.THREADS), get(f, header, Header.SPIN)
        is_caller = f.icmp("eq", thread, 0)
        behind = f.add(thread, 1)
        # The calling thread checks for signals at intervals.
        nap = f.select(is_caller, self._module.data("nap", _NAP, I64), f.const(0, PTR))

        def shares(ticket: Reg, first: Reg | int, end: Reg) -> Reg:
            return f.call_function(self._run_shares, header, ticket, first, end)

        def finish(done: Reg) -> Reg:
            """Whether these were the last shares of the phase."""

            def subtract() -> Reg:
                left = f.atomic_add(words, f.sub(f.reg(0), done), TeamWord.LEFT, "acq_rel")
                return f.icmp("eq", left, done)

            return f.when(f.icmp("ne", done, 0), subtract, lambda: f.const(0, I1))[0]

        def help_others(ticket: Reg) -> Reg:
            done = shares(ticket, behind, threads)
            return finish(f.add(done, shares(ticket, 0, thread)))

        def steer(ticket: Reg) -> None:
            following = f.add(phase_of(f, ticket), 1)
            found = f.call_function(self.go_on, header, following, thread, 0)
            f.call_function(self._publish, header, found)

        def visit(ticket: Reg) -> Reg:
            is_last = finish(shares(ticket, thread, behind))
            (is_last,) = f.when(is_last, lambda: f.const(1, I1), lambda: help_others(ticket))
            f.when(is_last, lambda: steer(ticket))
            f.when(is_caller, lambda: f.call_function(self.look, header))
            return f.call_function(self.wait, words, ticket, spin, nap)

        f.repeat(
            lambda ticket: f.icmp("ne", phase_of(f, ticket), IDLE),
            visit,
            [f.atomic_load(words, TeamWord.CURRENT)],
        )
        return f.finish()

    def _work(self) -> Function:
        f = self._module.function("work", [PTR, I64], noalias=False)
        header, phase = f.parameters
        f.call_function(self._publish, header, phase)
        pool = get_pointer(f, header, Header.POOL)
        no_owner, ours = f.reg(0), f.convert("ptrtoint", header, I64)
        is_ours = f.compare_exchange(pool, no_owner, ours, PoolWord.OWNER, "release")

        def ring() -> None:
            bell = f.atomic_load(pool, PoolWord.BELL, "monotonic")
            f.call_function(self._wake, pool, f.add(bell, 1))

        f.when(is_ours, ring)
        f.call_function(self.walk, header, 0)
        # A helper publishes its instance before it reads this; the thread that frees the instance
        # does both in the opposite order.
        f.when(is_ours, lambda: f.atomic_store(0, pool, PoolWord.OWNER, "seq_cst"))
        return f.finish()


def _futex(f: Function, word: Reg, what: int, value: Reg, until: Reg | None = None) -> None:
    """Sleep while the lower half of a word has a value, or wake some of the threads that do."""
    number = _FUTEX.get(f.target.triple.partition("-")[0])
    if number is not None:
        until = f.const(0, PTR) if until is None else until
        f.call("syscall", I64, f.reg(number), word, f.reg(what), value, until)


def helper_text(symbol: str, target: Target) -> str:
    """Return the module whose external function `symbol` a helper runs, given its own words: it
    waits for the bell and works for the step that rang it. It never returns.
    """
    module = Module(target)
    team = TeamFunctions(module)
    f = module.function(symbol, [PTR], PTR, internal=False, noalias=False)
    (own,) = f.parameters
    number, spin = (f.load(I64, own, w) for w in (HelperWord.NUMBER, HelperWord.SPIN))
    pool = f.load(PTR, own, HelperWord.POOL)

    def owner() -> Reg:
        return f.atomic_load(pool, PoolWord.OWNER, "seq_cst")

    def enter(address: Reg) -> None:
        """Work for an instance, which isn't freed while its address stands in INSIDE."""
        f.atomic_store(address, own, HelperWord.INSIDE, "seq_cst")
        f.when(f.icmp("eq", owner(), address), lambda: walk(address))
        f.atomic_store(0, own, HelperWord.INSIDE)

    def walk(address: Reg) -> None:
        header = f.convert("inttoptr", address, PTR)
        is_member = f.icmp("slt", number, get(f, header, Header.THREADS))
        f.when(is_member, lambda: f.call_function(team.walk, header, number))

    def serve(bell: Reg, tired: Reg) -> list[Reg]:
        found = owner()
        f.when(f.icmp("ne", found, 0), lambda: enter(found))
        # Spinning in vain takes time from the threads that ring the bell, if they share a core.
        is_fresh = f.icmp("eq", tired, 0)
        while_awake = f.select(is_fresh, spin, f.div(spin, _SHORTER))
        start = clock(f)
        rung = f.call_function(team.wait, pool, bell, while_awake, f.const(0, PTR))
        in_vain = f.icmp("ugt", f.wrapping("sub", clock(f), start), spin)
        return [rung, f.select(is_fresh, f.select(in_vain, _REST, 0), f.sub(tired, 1))]

    start = [f.atomic_load(pool, PoolWord.BELL), f.reg(0)]
    f.repeat(lambda *_: f.const(1, I1), serve, start)
    f.finish(f.const(0, PTR))
    return str(module)
