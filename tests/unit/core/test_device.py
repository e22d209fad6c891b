"""Device names: merging, matching, and refusal of malformed names."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._src.core.device_names import (
    DeviceSpec,
    canonical_name,
    check_valid,
    matches,
    merge_device,
)

index = st.none() | st.integers(0, 99)
specs = st.builds(
    DeviceSpec,
    job=st.none() | st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True),
    replica=index,
    task=index,
    device_type=st.sampled_from([None, "CPU", "GPU", "XLA"]),
    device_index=index,
)


@given(specs)
def test_parsing_undoes_to_string(spec):
    assert DeviceSpec.from_string(spec.to_string()) == spec


@given(specs, specs)
def test_merged_device_matches_the_inner_request(outer, inner):
    merged = merge_device(outer)(SimpleNamespace(device=inner.to_string()))
    assert matches(inner, merged)
    assert DeviceSpec.from_string(merged) == outer.make_merged_spec(inner)


# (outer scope, device so far, result), recorded from nested tf.device scopes of TensorFlow 1.15.
SCOPES = [
    ("/job:a/task:1/cpu:0", "/task:2", "/job:a/task:2/device:CPU:0"),
    ("/job:a/task:1/cpu:0", "/gpu:2", "/job:a/task:1/device:GPU:2"),
    ("/job:a/task:1/cpu:0", "/gpu", "/job:a/task:1/device:GPU:0"),
    ("/job:a/task:1/cpu:0", "/job:zz", "/job:zz/task:1/device:CPU:0"),
    ("/job:a/task:1/cpu:0", "", "/job:a/task:1/device:CPU:0"),
    ("/job:q/cpu:0", "/job:r/gpu:*", "/job:r/device:GPU:0"),
    (DeviceSpec(job="z"), None, "/job:z"),
    (None, "/cpu:0", "/device:CPU:0"),
]


@pytest.mark.parametrize(("outer", "inner", "merged"), SCOPES)
def test_scopes_fill_what_inner_scopes_leave_open(outer, inner, merged):
    assert merge_device(outer)(SimpleNamespace(device=inner)) == merged


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", True),
        (None, True),
        ("/cpu:*", True),
        ("/job:a", True),
        ("/job:*/task:*", True),
        ("/device:*:1", True),
        (DeviceSpec(task=0, device_type="CPU"), True),
        ("/gpu:*", False),
        ("/cpu:0", False),
        ("/job:b", False),
        ("/replica:0", False),
    ],
)
def test_matches(pattern, expected):
    assert matches(pattern, "/job:a/task:0/device:CPU:1") is expected


@pytest.mark.parametrize(
    "name", ["/job:", "/job:a b", "/task:-1", "/task:1.5", "/device::0", "/device:1:0", "/x", "//:"]
)
def test_malformed_names_are_refused(name):
    for function in (check_valid, canonical_name, merge_device, DeviceSpec.from_string):
        with pytest.raises(ValueError):
            function(name)


def test_malformed_fields_are_refused():
    spec = DeviceSpec(job="a")
    with pytest.raises(ValueError, match=r"malformed task: 1\.5"):
        spec.task = 1.5
    with pytest.raises(TypeError, match="must be a string, not int"):
        DeviceSpec.from_string(3)
    with pytest.raises(ValueError, match="malformed task: 'x'"):
        spec.parse_from_string("/job:b/task:x")
    assert spec == DeviceSpec(job="a")
