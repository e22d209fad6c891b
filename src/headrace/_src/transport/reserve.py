"""Reserve ports of this host for servers of other processes. In: a number. Out: Reservations.

A reserved port is bound and never listened on. While it is, the system gives it to nobody that asks
for a free port or connects, and a server that names it can listen on it, because both sockets have
SO_REUSEADDR and only one of them listens. So there is no moment in which another process could
take the port: not before the server starts, and not while a server that has died is restarted.
A listening socket that the server inherits would keep its port too, but connections to a dead
server would be accepted and never answered.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

__all__ = ["Reservation", "reserve"]


@dataclass(frozen=True, slots=True)
class Reservation:
    """An address that is kept for a server of this host until it is closed."""

    address: str
    held: socket.socket

    def close(self) -> None:
        """Give the port up; a server that listens on it goes on."""
        self.held.close()


def reserve(count: int, host: str = "127.0.0.1") -> list[Reservation]:
    """Return reservations of `count` free ports."""
    found: list[Reservation] = []
    try:
        for _ in range(count):
            held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((host, 0))
            found.append(Reservation(f"{host}:{held.getsockname()[1]}", held))
    except BaseException:
        for each in found:
            each.close()
        raise
    return found
