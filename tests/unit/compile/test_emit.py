"""What the emitter writes, run."""

from dataclasses import dataclass

import numpy as np
import pytest

from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import load_value, store_value
from headrace._src.compile.native.machine_code import run_kernel
from headrace._src.core.dtypes import as_dtype


@dataclass(frozen=True)
class FirstLanes:
    """Store the first lanes of a vector of 16 floats in a narrow type."""

    dtype: str
    count: int

    arguments = ("x", "out:y")
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        value = load_value(f, "float32", 16, team.args[0])
        store_value(f, self.dtype, value, team.args[1], mask=f.first_lanes(self.count, 16))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("count", [1, 2, 15])
def test_a_masked_store_leaves_the_other_lanes_alone(dtype, count):
    x = np.arange(1, 17, dtype=np.float32)
    y = np.full(16, -1, as_dtype(dtype).as_numpy_dtype)
    run_kernel(FirstLanes(dtype, count), [x, y], threads=1)
    assert y.tolist() == [*range(1, count + 1), *[-1] * (16 - count)]
