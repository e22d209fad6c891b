"""`headrace doctor`: report what this installation has, what is missing and why. Out: a table, and
exit status 1 if there is a problem that can be fixed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

import headrace
from headrace._src.compile.native import code_cache, machine_code
from headrace._src.core.config import settings
from headrace._src.devices import onednn, openmp
from headrace._src.devices.blocks import memory_limit
from headrace._src.devices.onednn.library import library
from headrace._src.devices.target import host

__all__ = ["Finding", "command", "findings"]

_PACKAGES = ("numpy", "ml_dtypes", "llvmlite", "onednn-cpu-gomp", "protobuf")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. good None: neither good nor bad."""

    topic: str
    text: str
    good: bool | None = None


@click.command()
@click.option("--measure", is_flag=True, help="Also measure the processor; takes some seconds.")
def command(measure: bool) -> None:
    """Show what this installation has, and what is missing."""
    found = list(findings())
    if measure:
        found += _measurements()
    Console(soft_wrap=True).print(_table(found))
    sys.exit(1 if any(f.good is False for f in found) else 0)


def _table(found: list[Finding]) -> Table:
    table = Table(show_header=False, box=None)
    marks = {True: "[green]ok[/]", False: "[red]!![/]", None: ""}
    for f in found:
        table.add_row(marks[f.good], f.topic, f.text)
    return table


def findings() -> Iterator[Finding]:
    """Yield the lines that need no measurement."""
    yield Finding("Python", f"{platform.python_version()} on {platform.platform()}")
    packages = ", ".join(f"{p} {_version(p)}" for p in _PACKAGES)
    yield Finding("versions", f"headrace {headrace.HEADRACE_VERSION}, {packages}")
    yield from _processor()
    yield _llvm()
    yield _openmp()
    yield _onednn()
    yield _cache()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _processor() -> Iterator[Finding]:
    yield Finding("memory", f"{memory_limit() / 2**30:.1f} GiB")
    try:
        target = host()
    except ValueError as error:  # HEADRACE_TARGET asks for more than the processor supports
        yield Finding("target", str(error), False)
        return
    asked = settings().target
    yield Finding("target", f"{target}{'' if asked == 'host' else f' (HEADRACE_TARGET={asked})'}")


def _llvm() -> Finding:
    reason = machine_code.why_not()
    if reason is not None:
        return Finding("compiler", reason, False)
    cpu, _ = machine_code.machine_of(host())
    return Finding("compiler", f"llvmlite generates code for {cpu}", True)


def _openmp() -> Finding:
    reason = openmp.why_not()
    return Finding("threads", reason or f"OpenMP, teams of {openmp.thread_count()}", not reason)


def _onednn() -> Finding:
    reason = onednn.why_not()
    packaged = sys.platform == "linux" and platform.machine() == "x86_64"
    if reason is None:
        return Finding("oneDNN", f"loaded, uses {library().instructions}", True)
    chosen = settings().no_onednn or not packaged  # its absence is not a fault
    return Finding("oneDNN", reason, None if chosen else False)


def _cache() -> Finding:
    store = code_cache.store()
    if store.directory is None:
        return Finding("cache", "switched off")
    if store.why_not is not None:
        return Finding("cache", f"not used: {store.why_not}", False)
    entries, size = store.usage()
    limit = settings().cache_mb
    text = f"{store.directory}: {entries} entries, {size / 2**20:.1f} of {limit} MiB"
    return Finding("cache", text, os.access(store.directory, os.W_OK))


def _measurements() -> Iterator[Finding]:
    from headrace._src.compile.native import roofs as measure

    if machine_code.why_not() is None:
        threads = openmp.thread_count()
        one, team = measure.peak_flops(1), measure.peak_flops(threads)
        yield Finding("peak", f"{one / 1e9:.0f} GF/s one thread, {team / 1e9:.0f} on {threads}")
        bandwidth = measure.bandwidth(threads)
        yield Finding(
            "bandwidth", f"{bandwidth / 1e9:.1f} GB/s (the better of a copy and an update in place)"
        )
    yield Finding("product", f"{measure.product_flops() / 1e9:.0f} GF/s (float32, 1024 cubed)")
