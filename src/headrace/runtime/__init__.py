"""The runtime: runs Programs. It knows kernels and slots, and no passes."""

from headrace.runtime.executor import Executable
from headrace.runtime.kernels import ShapesChanged
from headrace.runtime.numerics import guarded
from headrace.runtime.step import Step

__all__ = ["Executable", "ShapesChanged", "Step", "guarded"]
