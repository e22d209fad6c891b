"""Run Programs. The runtime knows kernels and slots; it does not know passes."""

from headrace._src.runtime.executor import Executable
from headrace._src.runtime.kernels import ShapesChanged
from headrace._src.runtime.numerics import guarded
from headrace._src.runtime.partitions import PartitionedExecutable
from headrace._src.runtime.step import Step

__all__ = ["Executable", "PartitionedExecutable", "ShapesChanged", "Step", "guarded"]
