"""The order of passes from fetches and feeds to a Program."""

from headrace._src.pipeline.divided import divide, finish_partitions
from headrace._src.pipeline.passes import (
    PASSES,
    Options,
    compile_step,
    finish,
    finish_as_is,
    optimise,
    prepare,
)
from headrace._src.pipeline.tiers import compile_at

__all__ = [
    "PASSES",
    "Options",
    "compile_at",
    "compile_step",
    "finish",
    "divide",
    "finish_as_is",
    "finish_partitions",
    "optimise",
    "prepare",
]
