"""The runtime: runs Programs. It knows kernels and slots, and no passes."""

from headrace._src.runtime.executor import Executable
from headrace._src.runtime.kernels import ShapesChanged
from headrace._src.runtime.numerics import guarded
from headrace._src.runtime.step import Step

__all__ = ["Executable", "ShapesChanged", "Step", "guarded"]
