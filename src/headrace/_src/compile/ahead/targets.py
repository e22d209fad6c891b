"""Processors to compile for ahead of time. In: `--target` and `--cpu`. Out: a Target.

The widths must be known here, because generated code has explicit vectors, so only listed
processors can be chosen. All of them round to integers in hardware (x86-64-v2 is the first of its
line that does): the generated code never needs a mathematical library.
"""

from __future__ import annotations

from headrace._src.devices.target import Target, for_level

__all__ = ["ARCHITECTURES", "target_for"]

ARCHITECTURES = ("x86_64", "aarch64", "wasm32")

_TRIPLES = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
    "wasm32": "wasm32-unknown-unknown",
}

_NEON = ("+neon", 16, 32)  # features, bytes of a vector register, how many there are
_ARM = ("generic", "cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1", "apple-m1")
# architecture -> processor; the first is the default.
_PROCESSORS: dict[str, dict[str, Target]] = {
    "x86_64": {
        level: for_level(level, _TRIPLES["x86_64"])
        for level in ("x86-64-v3", "x86-64-v2", "x86-64-v4")
    },
    "aarch64": {cpu: Target(_TRIPLES["aarch64"], cpu, *_NEON) for cpu in _ARM},
    # WebAssembly has no registers to count; engines map 16 of them onto the machine's.
    "wasm32": {"generic": Target(_TRIPLES["wasm32"], "generic", "+simd128,+bulk-memory", 16, 16)},
}


def target_for(architecture: str, cpu: str | None = None) -> Target:
    """The target of that architecture; `cpu` chooses another processor than the default."""
    if architecture not in _PROCESSORS:
        raise ValueError(f"no target {architecture!r}; there are {', '.join(ARCHITECTURES)}")
    processors = _PROCESSORS[architecture]
    cpu = cpu or next(iter(processors))
    if cpu not in processors:
        raise ValueError(
            f"no processor {cpu!r} of {architecture}; there are {', '.join(processors)}"
        )
    return processors[cpu]
