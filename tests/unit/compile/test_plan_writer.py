"""Plans are written call by call, and fragments, which are plans themselves, spliced into them."""

import pytest

from headrace._src.compile.kernels.rows.batch_norm_channels import batch_norm, batch_norm_statistics
from headrace._src.compile.kernels.rows.local_response_rows import local_response
from headrace._src.compile.kernels.singles.softmax_rows import softmax
from headrace._src.compile.plan.plan_writer import PlanWriter
from headrace._src.compile.plan.verify_plan import verify_plan
from headrace._src.core.errors import InternalError
from headrace._src.lowering.anchors import BatchNorm, LocalResponse, Softmax
from tests.unit.compile.plans import Scale

N = 32


def fragment():
    """input 0 -> a temporary -> output 0"""
    plan = PlanWriter()
    x, y = plan.add("input", "float32", N, index=0), plan.add("output", "float32", N, index=0)
    middle = plan.temporary("float32", N, "middle")
    plan.call(Scale(N, 2.0), [x, middle])
    plan.call(Scale(N, 3.0), [middle, y])
    return plan.finish()


def spliced(dtype="float32", count=N):
    plan = PlanWriter()
    x = plan.add("input", dtype, count, index=0)
    y = plan.temporary("float32", N, "between")
    z = plan.add("output", "float32", N, index=0)
    plan.splice(fragment(), {0: x}, {0: y}, "first")
    plan.splice(fragment(), {0: y}, {0: z}, "second")
    return plan.finish()


def test_a_spliced_fragment_works_on_the_plans_buffers():
    plan = spliced()
    verify_plan(plan)
    assert [c.buffers for c in plan.calls] == [(0, 3), (3, 1), (1, 4), (4, 2)]
    assert [c.label for c in plan.calls] == ["first", "first", "second", "second"]
    assert [plan.buffers[b].label for b in (3, 4)] == ["first/middle", "second/middle"]


def test_temporaries_of_fragments_share_the_arena():
    plan = spliced()
    assert plan.buffers[3].offset == plan.buffers[4].offset
    assert plan.arena == 2 * 4 * N


@pytest.mark.parametrize("given", [("float64", N), ("float32", N - 1)])
def test_a_buffer_that_does_not_fit_is_refused(given):
    with pytest.raises(AssertionError, match="a fragment's buffer input0 float32 128B can't be"):
        spliced(*given)


def test_a_fragment_is_verified_and_printed_as_a_plan():
    lines = str(fragment()).splitlines()
    assert lines[0] == "b0: input0 float32 128B"
    assert lines[-1] == "arena 128"
    plan = PlanWriter()
    plan.add("output", "float32", N, index=0)
    with pytest.raises(InternalError, match=r"output b0 .* is not written"):
        verify_plan(plan.finish())


@pytest.mark.parametrize("reach", [0, 2])
def test_every_anchor_over_rows_keeps_what_a_plan_promises(reach):
    made = [softmax(Softmax(4, 5, log, "float32")) for log in (False, True)]
    for direction in ("forward", "gradient"):
        made.append(local_response(LocalResponse(direction, 3, 8, reach, 1.0, 1.0, 0.5, "float32")))
        for training in (False, True):
            g = BatchNorm(direction, training, 2, 9, 16, 1e-3, "NHWC", "float32", 6)
            made.append(batch_norm(g))
            if direction == "forward":
                made.append(batch_norm_statistics(g))
    for plan in made:
        verify_plan(plan)
