"""The ops that save and restore tensors."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.io import checkpoints as ops

VALUE = np.arange(8, dtype=np.float32).reshape(4, 2)
HALVES = (["p", "p"], ["4 2 0,2:0,2", "4 2 2,2:0,2"], [VALUE[:2], VALUE[2:]])


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_v2_round_trip_of_all_kinds(session, tmp_path):
    prefix = str(tmp_path / "new" / "v2")
    values = [VALUE, np.array([b"a", b""], object), np.int64(7), np.array([True])]
    names = ["a", "b", "c", "d"]
    session.run(ops.save_v2(prefix, names, [""] * 4, values))
    kinds = [tf.float32, tf.string, tf.int64, tf.bool]
    found = session.run(ops.restore_v2(prefix, names, [""] * 4, kinds))
    assert [f.tolist() for f in map(np.asarray, found)] == [v.tolist() for v in values]


def test_v1_round_trip(session, tmp_path):
    path = str(tmp_path / "v1")
    session.run(ops.save(path, ["a"], [VALUE]))
    assert (session.run(ops.restore(path, "a", tf.float32)) == VALUE).all()
    assert (session.run(ops.restore_v2(path, ["a"], [""], [tf.float32]))[0] == VALUE).all()
    session.run(ops.save_slices(path, *HALVES))
    part = ops.restore_slice(path, "p", "4 2 1,2:-", tf.float32)
    assert part.shape == [2, 2] and (session.run(part) == VALUE[1:3]).all()


def test_slices_and_their_static_shapes(session, tmp_path):
    prefix = str(tmp_path / "v2")
    session.run(ops.save_v2(prefix, *HALVES))
    whole, part = ops.restore_v2(prefix, ["p", "p"], ["", "4 2 1,2:-"], [tf.float32] * 2)
    assert whole.shape.ndims is None and part.shape == [2, 2]
    values = session.run([whole, part])
    assert (values[0] == VALUE).all() and (values[1] == VALUE[1:3]).all()


def test_shards_are_merged(session, tmp_path):
    shards = [str(tmp_path / "temp" / f"part-{i}") for i in range(2)]
    for shard, i in zip(shards, range(2), strict=True):
        session.run(ops.save_v2(shard, [f"v{i}"], [""], [VALUE + i]))
    session.run(ops.merge_v2_checkpoints(shards, str(tmp_path / "all")))
    found = session.run(
        ops.restore_v2(str(tmp_path / "all"), ["v0", "v1"], ["", ""], [tf.float32] * 2)
    )
    assert (found[1] - found[0] == 1).all() and not (tmp_path / "temp").exists()


def test_names_of_shards(session):
    assert session.run(ops.sharded_filename("x", 1, 3)) == b"x-00001-of-00003"
    assert session.run(ops.sharded_filespec("x", 3)) == b"x-?????-of-00003"


def test_a_missing_name_comes_with_the_whole_story(session, tmp_path):
    prefix = str(tmp_path / "c")
    session.run(ops.save_v2(prefix, ["net/dense/kernel", "step"], ["", ""], [VALUE, VALUE]))
    asked = ops.restore_v2(prefix, ["dense/kernel", "step"], ["", ""], [tf.float32] * 2)
    with pytest.raises(tf.errors.NotFoundError) as error:
        session.run(asked)
    text = str(error.value)
    assert "Key dense/kernel not found in checkpoint" in text
    assert "missing in the checkpoint: dense/kernel" in text
    assert "not asked for: net/dense/kernel" in text
    assert "nearest to dense/kernel: net/dense/kernel" in text


@pytest.mark.parametrize(
    ("name", "spec", "kind", "message"),
    [
        ("a", "", tf.int32, "expected dtype int32 does not equal original dtype float32"),
        ("a", "5 2 0,1:-", tf.float32, r"shape in shape_and_slice spec \[5, 2\] does not match"),
    ],
)
def test_what_does_not_fit(session, tmp_path, name, spec, kind, message):
    session.run(ops.save_v2(str(tmp_path / "c"), ["a"], [""], [VALUE]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        session.run(ops.restore_v2(str(tmp_path / "c"), [name], [spec], [kind]))


def test_mistakes_are_told_when_building():
    with pytest.raises(ValueError, match="Dimension must be 1 but is 2"):
        ops.save_v2("x", ["w"], ["", ""], [VALUE])
    with pytest.raises(ValueError, match="Expected a pair of numbers"):
        ops.restore_v2("x", ["w"], ["2 3 0,1:0"], [tf.float32])
    with pytest.raises(ValueError, match="rank 0"):
        ops.save_v2(["x"], ["w"], [""], [VALUE])
