"""The protocol of heartbeats, and a process that answers them (the sidecar).

A message is two little-endian words: PING or PONG, and a number. Whoever receives a ping answers
with a pong of the same number at once. Whoever receives a pong writes its number to the table of
answers, at the index of the socket's descriptor.

As a program, this file answers for another process, which started it: its arguments are descriptors
of a control socket and of the table of answers, and the number of that process. Commands come
through the control socket: (index, 1) with a descriptor to serve, (index, 0) to stop serving. The
sidecar ends when the control socket ends, thus with the process that it answers for; and it does
not answer while that process is stopped. It runs without Headrace, so this file imports nothing of
it.
"""

import array
import mmap
import select
import socket
import struct
import sys
from collections.abc import Callable
from enum import IntEnum

PING = int.from_bytes(b"HRbeat\x01?", "little")
PONG = int.from_bytes(b"HRbeat\x01!", "little")
MESSAGE = struct.Struct("<QQ")
COMMAND = struct.Struct("<qq")
TABLE = 1 << 16  # descriptors
CLOSED = (1 << 63) - 1  # in place of a number: the connection has ended
FAILURES = 1000  # of the system in a row, after which a responder gives up


class Word(IntEnum):
    """The words that the native responder is called with: descriptors, the table, functions."""

    EPOLL = 0
    STOP = 1
    TABLE = 2
    EPOLL_WAIT = 3
    EPOLL_CTL = 4
    RECV = 5
    SEND = 6


def main(control_fd: int, table_fd: int, process: int) -> None:
    """Answer heartbeats until the control socket ends."""
    table = memoryview(mmap.mmap(table_fd, 8 * TABLE)).cast("Q")
    control = socket.socket(fileno=control_fd)
    served: dict[int, tuple[int, socket.socket]] = {}
    epoll = select.epoll()
    epoll.register(control_fd, select.EPOLLIN)

    def leave(fd: int) -> None:
        _, sock = served.pop(fd)
        epoll.unregister(fd)
        sock.close()

    while True:
        for fd, _ in epoll.poll():
            if fd == control_fd:
                if not command(control, served, epoll, leave):
                    return
                continue
            if fd not in served:
                continue  # a command of the same round has ended it
            index, sock = served[fd]
            try:
                word, number = MESSAGE.unpack(sock.recv(MESSAGE.size, socket.MSG_DONTWAIT))
                if word == PING:
                    if runs(process):
                        sock.send(MESSAGE.pack(PONG, number), socket.MSG_DONTWAIT)
                elif word == PONG:
                    table[index] = number
                else:
                    raise ValueError(word)
            except BlockingIOError:
                continue
            except (OSError, ValueError, struct.error):
                table[index] = CLOSED
                leave(fd)


def command(
    control: socket.socket, served: dict, epoll: select.epoll, leave: Callable[[int], None]
) -> bool:
    """Obey a command; returns False at the end."""
    try:
        data, rights, _, _ = control.recvmsg(COMMAND.size, socket.CMSG_SPACE(4))
    except OSError:
        return False
    if len(data) != COMMAND.size:
        return False
    index, serve = COMMAND.unpack(data)
    for fd in [fd for fd, (other, _) in served.items() if other == index]:
        leave(fd)
    if serve:
        fds = array.array("i")
        fds.frombytes(rights[0][2][: fds.itemsize])
        sock = socket.socket(fileno=fds[0])
        served[fds[0]] = index, sock
        epoll.register(fds[0], select.EPOLLIN)
    return True


def runs(process: int) -> bool:
    """True if a process is neither stopped nor dead."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"T", b"t", b"Z", b"X")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
