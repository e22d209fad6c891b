"""Open connections. In: an address "host:port", who we are, a key. Out: a Connection.

A listener has two sockets: TCP on exactly the host that was asked for, and a Unix socket in the
abstract namespace that is named after that address. A client on the same host finds the Unix socket
by itself. Abstract names vanish with their process, and belong to a network namespace.

Without a key only processes of this host can connect, and only those of the same user: a Unix
socket tells the user at its other end, and the system's table of connections tells that of a local
TCP connection. Listening on other addresses is refused then.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import stat
import struct
import time
from dataclasses import dataclass
from typing import Final

from headrace._src.core import errors, faults
from headrace._src.core.config import settings
from headrace._src.transport import keys
from headrace._src.transport.frame import ProtocolError
from headrace._src.transport.handshake import DEADLINE, Handshake, Hello, RefusedError, Service
from headrace._src.transport.moves import current_address

__all__ = [
    "Connection",
    "Listener",
    "close_all",
    "connect",
    "is_loopback",
    "listen",
    "prepare",
    "same_address",
    "split_address",
    "user_of",
    "user_of_tcp",
]

_log = logging.getLogger("headrace")
_CREDENTIALS: Final = struct.Struct("3i")
_WILDCARDS: Final = ("0.0.0.0", "::")
_BACKLOG: Final = 128


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection whose handshake is over. `rest` are bytes that came with its end."""

    socket: socket.socket
    peer: Hello
    address: str
    unix: bool
    service: Service = Service.FRAMES
    rest: bytes = b""


@dataclass(frozen=True, slots=True)
class Listener:
    """The sockets of a server. `address` has the port that was found for port 0."""

    address: str
    sockets: tuple[socket.socket, ...]
    key: bytes | None

    def close(self) -> None:
        """Accept no more connections."""
        for sock in self.sockets:
            sock.close()


def listen(address: str = "127.0.0.1:0", key: bytes | None = None) -> Listener:
    """Listen on an address, such as "127.0.0.1:2222"; port 0 finds a free port.

    Raises FailedPreconditionError if other hosts could connect and there is no key,
    UnavailableError if the address cannot be used.
    """
    address = current_address(address)
    host, port = split_address(address)
    family, ip = _resolve(host, address)
    if key is None and not ipaddress.ip_address(ip).is_loopback:
        raise errors.FailedPreconditionError(
            None,
            None,
            f"listening on {address} would let other hosts run code here, and there is no key",
            hint=keys.how_to_make_one(),
        )
    tcp = socket.socket(family, socket.SOCK_STREAM)
    try:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            tcp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        tcp.bind((ip, port))
        tcp.listen(_BACKLOG)
    except OSError as error:
        tcp.close()
        raise errors.UnavailableError(
            None, None, f"cannot listen on {address}: {os.strerror(error.errno or 0)}"
        ) from None
    port = tcp.getsockname()[1]
    sockets = [tcp]
    unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        unix.bind(_name(ip, port))
        unix.listen(_BACKLOG)
        sockets.append(unix)
    except OSError as error:
        unix.close()
        _log.warning("%s: processes of this host will use TCP: %s", address, error)
    for sock in sockets:
        sock.setblocking(False)
    shown = f"[{host}]" if ":" in host else host
    return Listener(f"{shown}:{port}", tuple(sockets), key)


def connect(
    address: str,
    hello: Hello,
    key: bytes | None = None,
    timeout: float = DEADLINE,
    service: Service = Service.FRAMES,
) -> Connection:
    """Connect to a listener: by its Unix socket if it is on this host, else by TCP.

    Raises UnavailableError if nobody answers in `timeout` seconds, UnauthenticatedError if one side
    refuses the other.
    """
    address = current_address(address)
    host, port = split_address(address)
    family, ip = _resolve(host, address)
    deadline = time.monotonic() + timeout
    sock = None
    if settings().transport != "tcp" and _is_ours(family, ip):
        sock = _connect_unix(ip, port)
    try:
        if sock is None:
            sock = socket.socket(family, socket.SOCK_STREAM)
            _limit(sock, deadline)
            sock.connect((ip, port))
        prepare(sock)
        return _meet(sock, Handshake(hello, key, False, service, address), address, deadline)
    except BaseException as error:
        if sock is not None:
            sock.close()
        if isinstance(error, RefusedError):
            raise errors.UnauthenticatedError(None, None, str(error)) from None
        if isinstance(error, TimeoutError):
            message = f"{address} does not answer: waited {timeout:g} s"
            raise errors.UnavailableError(None, None, message) from None
        if isinstance(error, (OSError, ProtocolError)):
            message = f"cannot connect to {address}: {error}"
            raise errors.UnavailableError(None, None, message) from None
        raise


def _meet(sock: socket.socket, shake: Handshake, address: str, deadline: float) -> Connection:
    answer = shake.start()
    while True:
        _limit(sock, deadline)
        if answer:
            sock.sendall(answer)
        if shake.peer is not None:
            break
        # Not a byte more: a descriptor that comes with the first frame would be lost.
        data = sock.recv(shake.missing)
        if not data:
            raise ProtocolError("the connection was closed during the handshake")
        answer = shake.feed(data)
    sock.settimeout(None)
    unix = sock.family == socket.AF_UNIX
    return Connection(sock, shake.peer, address, unix, shake.service, shake.rest)


def _limit(sock: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left)


def _connect_unix(ip: str, port: int) -> socket.socket | None:
    """Return a socket that is connected with this user's listener on this host, if there's one."""
    for candidate in (ip, *_WILDCARDS):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            sock.setblocking(False)
            sock.connect(_name(candidate, port))
            if user_of(sock) == os.getuid():
                return sock
        sock.close()
    return None


def close_all() -> None:
    """End all connections of this process in both directions, as a broken network does; it goes on
    to accept new ones.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as sock:
                    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        sock.shutdown(socket.SHUT_RDWR)


faults.set_close(close_all)


def prepare(sock: socket.socket) -> None:
    """Set the options of a connection. The buffers keep their default sizes, which adapt."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):
        if sock.getpeername()[0] == sock.getsockname()[0]:
            # Nothing is congested within a host. BBR, the default of some systems, paces packets
            # by timers, which take longer there than sending does.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def user_of(sock: socket.socket) -> int:
    """Return the user of the process at the other end of a Unix socket."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(data)[1]


def user_of_tcp(sock: socket.socket) -> int | None:
    """Return the user of the process of this host at the other end of a TCP connection, None if the
    system does not say.
    """
    wanted = [_kernel_name(*name[:2]) for name in (sock.getpeername(), sock.getsockname())]
    table = "tcp6" if sock.family == socket.AF_INET6 else "tcp"
    with contextlib.suppress(OSError), open(f"/proc/self/net/{table}") as file:
        for line in file:
            fields = line.split()
            if fields[1:3] == wanted:
                return int(fields[7])
    return None


def _kernel_name(ip: str, port: int) -> str:
    """An address as the kernel prints it: words of 4 bytes in the machine's order, in hex."""
    packed = ipaddress.ip_address(ip).packed
    words = [packed[i : i + 4][::-1].hex().upper() for i in range(0, len(packed), 4)]
    return f"{''.join(words)}:{port:04X}"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[host]:port"."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise errors.InvalidArgumentError(
            None, None, f"an address is host:port, such as 127.0.0.1:2222: {address!r}"
        )
    return host.strip("[]"), int(port)


def _resolve(host: str, address: str) -> tuple[int, str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise errors.UnavailableError(None, None, f"unknown host in {address}: {error}") from None
    found.sort(key=lambda info: info[0] != socket.AF_INET)  # localhost is both; listen and connect
    return found[0][0], str(found[0][4][0])  # have to choose the same


def is_loopback(address: str) -> bool:
    """Return whether only processes of this host can connect to an address."""
    host, _ = split_address(address)
    return ipaddress.ip_address(_resolve(host, address)[1]).is_loopback


def same_address(first: str, second: str) -> bool:
    """Return whether two addresses may mean the same: their ports are equal or to be chosen, and
    their hosts are, or may be, the same.
    """
    (host, port), (other, other_port) = split_address(first), split_address(second)
    if port != other_port and port and other_port:
        return False
    if host == other or not {host, other}.isdisjoint(_WILDCARDS):
        return True
    try:
        return not _ips(host).isdisjoint(_ips(other))
    except OSError:
        return True  # not known here, but perhaps where it was written


def _ips(host: str) -> set[str]:
    return {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}


def _is_ours(family: int, ip: str) -> bool:
    """True if an address belongs to this host."""
    if ipaddress.ip_address(ip).is_loopback or ip in _WILDCARDS:
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((ip, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def _name(ip: str, port: int) -> bytes:
    """The name of the Unix socket that belongs to an address."""
    return f"\0headrace/{ip}:{port}".encode()
