"""Checkpoint files: byte for byte TensorFlow 1.15.5's (scripts/record_checkpoints), both ways."""

import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from headrace._src.checkpoint.bundle import NamedTensor, merge_bundles, write_bundle
from headrace._src.checkpoint.open_checkpoint import open_checkpoint
from headrace._src.checkpoint.slice_files import write_slice_file
from headrace._src.checkpoint.slices import parse_shape_and_slice, slice_key
from headrace._src.core import errors
from tests.fixtures.checkpoints import tensors

RECORDED = Path(tensors.__file__).parent
WHOLE = tensors.whole(ml_dtypes.bfloat16)


def named(name, value, spec=""):
    return NamedTensor(name, value, *(parse_shape_and_slice(spec) if spec else ()))


def parts():
    return [named(name, value, spec) for name, spec, value in tensors.slices()]


def same(left, right):
    assert left.dtype == right.dtype and left.shape == right.shape
    if left.dtype == object:
        return left.tolist() == right.tolist()
    return left.tobytes() == right.tobytes()


def read_all(prefix):
    with open_checkpoint(prefix) as checkpoint:
        return {name: checkpoint.read(name) for name in checkpoint.stored}


def assert_recorded(tmp_path, *names):
    for name in names:
        assert (tmp_path / name).read_bytes() == (RECORDED / name).read_bytes(), name


def test_whole_tensors_in_a_bundle(tmp_path):
    write_bundle(str(tmp_path / "v2"), [named(n, v) for n, v in WHOLE.items()])
    assert_recorded(tmp_path, "v2.index", "v2.data-00000-of-00001")
    found = read_all(RECORDED / "v2")
    assert found.keys() == WHOLE.keys() and all(same(found[n], WHOLE[n]) for n in WHOLE)


def test_slices_in_a_bundle(tmp_path):
    write_bundle(str(tmp_path / "v2_slices"), parts())
    assert_recorded(tmp_path, "v2_slices.index", "v2_slices.data-00000-of-00001")


def test_whole_tensors_in_a_v1_file(tmp_path):
    kept = {n: v for n, v in WHOLE.items() if n != "bfloat16"}
    write_slice_file(str(tmp_path / "v1"), [named(n, v) for n, v in kept.items()])
    assert_recorded(tmp_path, "v1")
    found = read_all(RECORDED / "v1")
    assert found.keys() == kept.keys() and all(same(found[n], kept[n]) for n in kept)
    with pytest.raises(errors.UnimplementedError):
        write_slice_file(str(tmp_path / "b"), [named("b", WHOLE["bfloat16"])])


def test_slices_in_a_v1_file(tmp_path):
    write_slice_file(str(tmp_path / "v1_slices"), parts())
    assert_recorded(tmp_path, "v1_slices")


@pytest.mark.parametrize("name", ["v1_slices", "v2_slices"])
def test_parts_are_put_together(name):
    table = np.arange(600, dtype=np.float32).reshape(300, 2)
    with open_checkpoint(RECORDED / name) as checkpoint:
        assert same(checkpoint.read("table"), table)
        assert checkpoint.read("grid").tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
        for spec in ("300 2 0,100:0,2", "300 2 99,2:-", "300 2 -:1,1", "300 2 150,10:-"):
            _, part = parse_shape_and_slice(spec)
            assert same(checkpoint.read("table", part), table[part.index([0, 0])])


def test_an_index_of_many_blocks(tmp_path):
    many = tensors.many()
    write_bundle(str(tmp_path / "many"), [named(n, v) for n, v in many.items()])
    digest = hashlib.sha256((tmp_path / "many.index").read_bytes()).hexdigest()
    assert digest == (RECORDED / "many.index.sha256").read_text().strip()
    assert all(found == many[name] for name, found in read_all(tmp_path / "many").items())


def test_merging_moves_the_data(tmp_path):
    halves = [parts()[:4], [*parts()[4:], named("other", np.int8(3))]]
    prefixes = [str(tmp_path / "temp" / f"part-{i}") for i in range(2)]
    for prefix, half in zip(prefixes, halves, strict=True):
        write_bundle(prefix, half)
    merge_bundles(prefixes, str(tmp_path / "merged"), delete_old_dirs=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "merged.data-00000-of-00002",
        "merged.data-00001-of-00002",
        "merged.index",
    ]
    found = read_all(tmp_path / "merged")
    assert found["table"].sum() == 600 * 599 / 2 and found["other"] == 3


def test_keys_of_slices_sort_as_their_numbers():
    specs = [
        f"100000 {start},{length}" for start in (0, 5, 63, 64, 8191, 8192) for length in (1, 70)
    ]
    keys = [slice_key("x", parse_shape_and_slice(spec)[1]) for spec in specs]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("4", "Need least two elements"),
        ("a 0,1", "Non numerical dimension"),
        ("4 0", "Expected a pair of numbers or '-' but got '0'"),
        ("4 0,0", "Expected non-negative start and positive length"),
        ("4 2,3", "Extent in dimension 0 out of bounds"),
        ("4 -:-", "Mismatching ranks"),
    ],
)
def test_bad_specifications(spec, message):
    with pytest.raises(errors.OpError, match=message):
        parse_shape_and_slice(spec)


def test_what_cannot_be_saved_leaves_nothing(tmp_path):
    one = named("x", np.float32(1))
    objects = np.array([object()], object)
    for tensors_ in ([one, one], [named("o", objects)], [named("", np.float32(1))]):
        with pytest.raises(errors.InvalidArgumentError):
            write_bundle(str(tmp_path / "bad"), tensors_)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(errors.NotFoundError, match="Failed to find any matching files"):
        open_checkpoint(tmp_path / "none")
    write_bundle(str(tmp_path / "c"), [named("x", np.float32(1)), named("p", [[1]], "2 1 0,1:-")])
    with open_checkpoint(tmp_path / "c") as checkpoint:
        with pytest.raises(errors.NotFoundError, match="Key y not found in checkpoint"):
            checkpoint.read("y")
        with pytest.raises(errors.InvalidArgumentError, match="isn't covered"):
            checkpoint.read("p")
    (tmp_path / "c.data-00000-of-00001").unlink()
    with open_checkpoint(tmp_path / "c") as checkpoint, pytest.raises(errors.NotFoundError):
        checkpoint.read("x")
