"""How two processes meet. In: bytes of the other side. Out: bytes to send, and the other's Hello.

`Handshake` is a state machine without I/O. Four messages, each a length and bytes:

    client  version, whether it has a key, nonce, service
    server  version, whether it has a key, nonce, proof that it has the key
    client  proof that it has the key, Hello
    server  proof, Hello; or in place of any of its messages: a refusal with the reason

A proof is an HMAC-SHA256 over both nonces, the sender's role and its Hello: neither side can replay
the other's, and no Hello is shown to a peer before it has proved that it has the key.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import os
import struct
from dataclasses import dataclass
from typing import Final

from headrace._src.transport.frame import ProtocolError

__all__ = ["DEADLINE", "Handshake", "Hello", "RefusedError", "Service"]

VERSION: Final = 1
DEADLINE: Final = 10.0  # seconds that a handshake may take
MAX_JOB: Final = 255  # bytes
MAX_COOKIE: Final = 64
MAX_MESSAGE: Final = 1024
MAX_REASON: Final = 400  # characters of a refusal
NONCE: Final = 32

_MAGIC: Final = b"Headrace"
_LENGTH: Final = struct.Struct("<H")
_OPENING: Final = struct.Struct(f"<B8sHBB{NONCE}s")  # type, magic, version, keyed, service, nonce
_HELLO: Final = struct.Struct("<BiQIBB")
_PROOF: Final = hashlib.sha256().digest_size
_OPEN, _PROVE, _REFUSE = 1, 2, 3
_ROLES: Final = ("task", "client")


class Service(enum.IntEnum):
    """What a connection is for."""

    FRAMES = 0
    HEARTBEATS = 1


class RefusedError(Exception):
    """The other side does not accept this connection; it says why."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a process is.

    role: "task" or "client"
    job, task: which task of the cluster; a client has none
    incarnation: grows with the time when the process started; tells two lives of one task apart
    process: the number of the process on its host
    cookie: bytes with the user's meaning, at most MAX_COOKIE
    """

    role: str
    job: str = ""
    task: int = -1
    incarnation: int = 0
    process: int = 0
    cookie: bytes = b""

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise ValueError(f"a process is a task or a client: {self.role!r}")
        if len(self.job.encode()) > MAX_JOB or len(self.cookie) > MAX_COOKIE:
            raise ValueError(
                f"a job's name has at most {MAX_JOB} bytes and a cookie {MAX_COOKIE}: "
                f"{self.job!r}, {len(self.cookie)}"
            )

    def encode(self) -> bytes:
        """Return this Hello as bytes."""
        job = self.job.encode()
        role = _ROLES.index(self.role)
        numbers = (role, self.task, self.incarnation, self.process, len(job), len(self.cookie))
        return _HELLO.pack(*numbers) + job + self.cookie

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """Return the Hello that bytes are; raise a ProtocolError if they are none."""
        if len(data) < _HELLO.size:
            raise ProtocolError("a Hello is too short")
        role, task, incarnation, process, job, cookie = _HELLO.unpack_from(data)
        rest = data[_HELLO.size :]
        if role >= len(_ROLES) or len(rest) != job + cookie or cookie > MAX_COOKIE:
            raise ProtocolError("a Hello is malformed")
        try:
            name = rest[:job].decode()
        except UnicodeDecodeError:
            raise ProtocolError("the job in a Hello is no text") from None
        return cls(_ROLES[role], name, task, incarnation, process, rest[job:])


class Handshake:
    """One side of a handshake.

    `start` and `feed` return bytes to send. When `peer` is set, the handshake is over; bytes that
    came after it are in `rest`. A refusal by the other side raises RefusedError. A ProtocolError
    means that the connection has to be closed; `refusal` is what to send before.
    """

    def __init__(
        self,
        hello: Hello,
        key: bytes | None,
        server: bool,
        service: Service = Service.FRAMES,
        where: str = "the other side",
    ) -> None:
        self.peer: Hello | None = None
        self.service = service
        self.rest = b""
        self.refusal = b""
        self._hello, self._key, self._server, self._where = hello, key, server, where
        self._nonce = os.urandom(NONCE)
        self._nonces = b""
        self._data = bytearray()
        self._opened = False

    def start(self) -> bytes:
        """Return what this side sends before it has heard anything."""
        return b"" if self._server else _message(self._opening())

    @property
    def missing(self) -> int:
        """How many bytes of the next message, or of its length, have yet to come."""
        if len(self._data) < _LENGTH.size:
            return _LENGTH.size - len(self._data)
        return max(1, _LENGTH.size + _LENGTH.unpack_from(self._data)[0] - len(self._data))

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the other side; return what to send now."""
        self._data += data
        answer = b""
        while self.peer is None and len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            if not 0 < length <= MAX_MESSAGE:
                raise ProtocolError(f"{self._where} does not speak Headrace's protocol")
            end = _LENGTH.size + length
            if len(self._data) < end:
                break
            message = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            answer += self._message(message)
        if self.peer is not None:
            self.rest = bytes(self._data)
        return answer

    def _message(self, message: bytes) -> bytes:
        kind = message[0]
        if kind == _REFUSE and not self._server:
            reason = message[1:].decode(errors="replace")
            raise RefusedError(f"{self._where} refused the connection: {reason}")
        if kind == _OPEN and not self._opened:
            return self._read_opening(message)
        if kind == _PROVE and self._opened:
            return self._read_proof(message)
        raise ProtocolError(f"{self._where} sent an unexpected message in the handshake")

    def _opening(self) -> bytes:
        keyed = self._key is not None
        return _OPENING.pack(_OPEN, _MAGIC, VERSION, keyed, int(self.service), self._nonce)

    def _read_opening(self, message: bytes) -> bytes:
        own_proof = 0 if self._server else _PROOF
        if len(message) != _OPENING.size + own_proof or message[1:9] != _MAGIC:
            raise ProtocolError(f"{self._where} does not speak Headrace's protocol")
        _, _, version, keyed, service, nonce = _OPENING.unpack_from(message)
        if version != VERSION:
            self._refuse(f"protocol version {version} and {VERSION} cannot talk to each other")
        if bool(keyed) != (self._key is not None):
            self._refuse(_KEYS[bool(keyed) == self._server])
        if self._server:
            if service not in tuple(Service):
                self._refuse(f"there is no service {service}")
            self.service = Service(service)
            self._nonces = nonce + self._nonce
        else:
            self._nonces = self._nonce + nonce
            self._check(message[_OPENING.size :], b"server opens", b"")
        self._opened = True
        if self._server:
            return _message(self._opening() + self._proof(b"server opens", b""))
        return self._proved(b"client")

    def _read_proof(self, message: bytes) -> bytes:
        proof, hello = message[1 : 1 + _PROOF], message[1 + _PROOF :]
        self._check(proof, b"client" if self._server else b"server", hello)
        self.peer = Hello.decode(hello)
        return self._proved(b"server") if self._server else b""

    def _proved(self, role: bytes) -> bytes:
        hello = self._hello.encode()
        return _message(bytes([_PROVE]) + self._proof(role, hello) + hello)

    def _proof(self, role: bytes, hello: bytes) -> bytes:
        if self._key is None:
            return bytes(_PROOF)
        text = b"".join((_MAGIC, role, b"\0", self._nonces, hello))
        return hmac.digest(self._key, text, "sha256")

    def _check(self, proof: bytes, role: bytes, hello: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(role, hello)):
            self._refuse("the two processes have different keys (HEADRACE_KEY_FILE)")

    def _refuse(self, reason: str) -> None:
        if self._server:
            self.refusal = _message(bytes([_REFUSE]) + reason[:MAX_REASON].encode())
        raise RefusedError(f"the connection with {self._where} is refused: {reason}")


_KEYS: Final = {
    True: "the client has a key but the server has none; give both the same HEADRACE_KEY_FILE",
    False: "the server requires a key; set HEADRACE_KEY_FILE to the file that the server uses",
}


def _message(data: bytes) -> bytes:
    assert len(data) <= MAX_MESSAGE
    return _LENGTH.pack(len(data)) + data
