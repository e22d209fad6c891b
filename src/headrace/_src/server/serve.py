"""Serve one task until it is stopped: `python -m headrace._src.server.serve SERVER_DEF`, with a
ServerDef in hexadecimal digits. headrace.cluster.local starts its servers this way.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from headrace._src.core.proto import ServerDef
from headrace._src.server.server import Server

__all__ = ["main"]


def main(encoded: str) -> None:
    """Serve the task that a ServerDef names. SIGTERM ends it, after the other tasks were told."""
    server = Server(ServerDef.FromString(bytes.fromhex(encoded)))

    def end(number: int, frame: FrameType | None) -> None:
        server.stop()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    server.join()


if __name__ == "__main__":
    main(sys.argv[1])
