"""Answer heartbeats in native code. In: nothing. Out: the responder of this process.

A thread that calls the function through ctypes does not hold Python's global lock, so the process
answers while Python code holds it. `transport.heartbeat.Responder` calls it.
"""

from __future__ import annotations

from headrace._src.compile.codegen.emit import I32, I64, PTR, Module, Reg
from headrace._src.compile.native import machine_code
from headrace._src.core.once import once
from headrace._src.devices.target import Target, host
from headrace._src.transport.beats import CLOSED, FAILURES, MESSAGE, PING, PONG, TABLE, Word
from headrace._src.transport.heartbeat import Responder

__all__ = ["native_responder", "responder", "responder_text"]

_DONT_WAIT, _NO_SIGNAL = 0x40, 0x4000  # flags of recv and send
_DELETE = 2  # a command of epoll_ctl


@once
def responder() -> Responder:
    """Return what answers the heartbeats of other processes, in native code where possible."""
    return Responder(native_responder())


def native_responder() -> int | None:
    """Return the address of the native function, None if no code can be generated here."""
    if machine_code.why_not() is not None:
        return None
    (address,) = machine_code.link({"heartbeats": lambda symbol: responder_text(symbol, host())})
    return address


def responder_text(symbol: str, target: Target) -> str:
    """Write the function: wait for a message, answer it or note the answer, until told to stop.

    Its argument are the words of `transport.beats.Word`. It returns 0.
    """
    module = Module(target)
    f = module.function(symbol, [PTR], I64, internal=False, noalias=False)
    (words,) = f.parameters
    message, event = f.local(I64, 2), f.local(I64, 2)
    epoll, stop = (f.convert("trunc", f.load(I64, words, w), I32) for w in (Word.EPOLL, Word.STOP))
    table, wait, control, receive, send = (
        f.load(PTR, words, w)
        for w in (Word.TABLE, Word.EPOLL_WAIT, Word.EPOLL_CTL, Word.RECV, Word.SEND)
    )
    # The system packs struct epoll_event on x86-64 only.
    place = 1 if target.triple.startswith("x86_64") else 2
    size = f.const(MESSAGE.size, I64)

    def leave(fd: Reg, index: Reg) -> None:
        f.call_pointer(control, I32, epoll, f.const(_DELETE, I32), fd, event)
        f.atomic_store(CLOSED, table, index)

    def answer(fd: Reg) -> None:
        f.store(f.const(PONG, I64), message)
        flags = f.const(_DONT_WAIT | _NO_SIGNAL, I32)
        f.call_pointer(send, I64, fd, message, size, flags)

    def read(fd: Reg, index: Reg) -> None:
        word = f.load(I64, message)

        def other() -> None:
            f.when(
                f.icmp("eq", word, PONG),
                lambda: f.atomic_store(f.load(I64, message, 1), table, index),
                lambda: leave(fd, index),
            )

        f.when(f.icmp("eq", word, PING), lambda: answer(fd), other)

    def serve(fd: Reg) -> None:
        # Responder.add takes no descriptor beyond the table.
        index = f.and_(f.convert("zext", fd, I64), TABLE - 1)
        count = f.call_pointer(receive, I64, fd, message, size, f.const(_DONT_WAIT, I32))
        whole = f.icmp("eq", count, MESSAGE.size)
        f.when(whole, lambda: read(fd, index), lambda: leave(fd, index))

    def step(patience: Reg) -> list[Reg]:
        one, forever = f.const(1, I32), f.const(-1, I32)
        count = f.call_pointer(wait, I32, epoll, event, one, forever)

        def happened() -> Reg:
            fd = f.load(I32, event, place)
            ended = f.icmp("eq", fd, stop)
            f.when(ended, lambda: None, lambda: serve(fd))
            return f.select(ended, f.const(0, I64), f.const(FAILURES, I64))

        return f.when(f.icmp("eq", count, one), happened, lambda: f.sub(patience, 1))

    f.repeat(lambda left: f.icmp("sgt", left, 0), step, [f.const(FAILURES, I64)])
    f.finish(f.const(0, I64))
    return str(module)
