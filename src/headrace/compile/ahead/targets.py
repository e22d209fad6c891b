"""Processors to compile for ahead of time. In: `--target` and `--cpu`. Out: a Target.

The widths must be known here, because generated code spells its vectors out; so only processors
that are listed can be asked for. All of them round to integers in hardware (x86-64-v2 is the first
of its line that does): the generated code never needs a mathematical library.
"""

from __future__ import annotations

from headrace.compile.target import Target

__all__ = ["ARCHITECTURES", "target_for"]

ARCHITECTURES = ("x86_64", "aarch64", "wasm32")

_TRIPLES = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
    "wasm32": "wasm32-unknown-unknown",
}

# architecture -> processor -> (features, bytes of a vector register, how many there are); the first
# is the default.
_PROCESSORS: dict[str, dict[str, tuple[str, int, int]]] = {
    "x86_64": {
        "x86-64-v3": ("", 32, 16),
        "x86-64-v2": ("", 16, 16),
        "x86-64-v4": ("-prefer-256-bit", 64, 32),
    },
    "aarch64": dict.fromkeys(
        ("generic", "cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1", "apple-m1"),
        ("+neon", 16, 32),
    ),
    # WebAssembly has no registers to count; engines map 16 of them onto the machine's.
    "wasm32": {"generic": ("+simd128,+bulk-memory", 16, 16)},
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
    features, vector_bytes, registers = processors[cpu]
    return Target(_TRIPLES[architecture], cpu, features, vector_bytes, registers)
