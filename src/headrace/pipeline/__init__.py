"""The order of passes from fetches and feeds to a Program."""

from headrace.pipeline.passes import PASSES, Options, compile_step

__all__ = ["PASSES", "Options", "compile_step"]
