"""Round trips and bandwidth between two processes of this host.

    python bench/transport.py [--large-gb 4]

A server echoes small frames, and answers large tensors with a small frame. Each line is the median,
and the quickest tenth, of many requests: over a Unix socket with shared memory, where the tensor is
copied into it or already there, and over TCP.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from headrace._src.transport.channel import Channel
from headrace._src.transport.connect import Connection, connect, listen
from headrace._src.transport.frame import Frame
from headrace._src.transport.handshake import Hello
from headrace._src.transport.link import Link
from headrace._src.transport.loop import Loop
from headrace._src.transport.slabs import shared_slabs

ECHO, TAKE = 1, 2


def serve() -> None:
    """Serve until the end of stdin."""
    loop, listener = Loop(), listen()

    def on_frame(link: Link, frame: Frame) -> None:
        link.send(frame if frame.kind == ECHO else Frame(TAKE, frame.number))

    def accept(connection: Connection) -> None:
        loop.add(connection, on_frame)

    loop.listen(listener, Hello("task", "server", 0, 1, os.getpid()), accept)
    loop.start()
    print(listener.address, flush=True)
    sys.stdin.read()
    loop.stop()


def times(request: Callable[[], object], count: int) -> tuple[float, float]:
    """Median seconds of a request, and those of the quickest tenth."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        request()
        found.append(time.perf_counter() - start)
    found.sort()
    return found[count // 2], found[count // 10]


def measure(how: str, channel: Channel, large_gb: float) -> None:
    small = Frame(ECHO, 0, bytes(20))
    scalars = Frame(ECHO, 0, bytes(20), (np.float32(1), np.zeros(4, np.float32)))
    for name, frame in (("no tensor", small), ("two small tensors", scalars)):
        median, quick = times(lambda frame=frame: channel.request(frame), 20_000)
        print(f"{how:22} {name:20} {median * 1e6:8.1f} us  (quickest tenth {quick * 1e6:.1f} us)")
    places: list[tuple[str, Callable[[int], np.ndarray]]]
    places = [("copied", lambda size: np.ones(size, np.uint8))]
    if channel.unix:
        places.append(("in place", shared_slabs().allocate))
    for size, count in ((1 << 20, 300), (100 << 20, 20), (int(large_gb * 2**30), 2)):
        for place, make in places if size else ():
            array = make(size)
            array[:] = 1
            frame = Frame(TAKE, 0, b"", (array,))
            median, quick = times(lambda frame=frame: channel.request(frame), count)
            name = f"{size >> 20} MB, {place}" if channel.unix else f"{size >> 20} MB"
            speeds = f"{size / median / 1e9:8.2f} GB/s  (quickest tenth {size / quick / 1e9:.2f})"
            print(f"{how:22} {name:20} {speeds}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--large-gb", type=float, default=0, help="also a tensor of this size")
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if os.environ.get("HEADRACE_TRANSPORT") is None:
        for transport in ("auto", "tcp"):
            environment = os.environ | {"HEADRACE_TRANSPORT": transport}
            subprocess.run([sys.executable, *sys.argv], env=environment, check=True)
        return
    with subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        channel = Channel(connect(server.stdout.readline().strip(), Hello("client")))
        measure("Unix, shared memory" if channel.unix else "TCP", channel, options.large_gb)
        channel.close()
        server.stdin.close()


if __name__ == "__main__":
    main()
