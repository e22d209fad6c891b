"""tf.train.Saver: what is saved, what is kept, what is restored."""

import contextlib

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.state.table_classes import MutableHashTable


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def started():
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


def variables(use_resource=False):
    with tf.device("/cpu:0"):
        tf.get_variable("a", [2, 3], use_resource=use_resource)
    tf.get_variable("n", initializer=7, use_resource=use_resource)
    tf.get_variable(
        "p", [5, 2], partitioner=tf.fixed_size_partitioner(2), use_resource=use_resource
    )
    return tf.global_variables()


OPTIONS = [{}, {"sharded": True}, {"restore_sequentially": True}, {"reshape": True}]
OPTIONS += [{"write_version": 1}, {"write_version": 1, "sharded": True}]


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_round_trip(tmp_path, options, use_resource):
    kept = variables(use_resource)
    saver = tf.train.Saver(**options)
    with started() as session:
        values = session.run(kept)
        path = saver.save(session, str(tmp_path / "model"), global_step=3)
    with tf.Session() as session:
        saver.restore(session, path)
        restored = session.run(kept)
    assert all(np.array_equal(x, y) for x, y in zip(values, restored, strict=True))
    assert tf.train.latest_checkpoint(str(tmp_path)) == path
    assert tf.train.checkpoint_exists(path)
    whole = tf.train.load_variable(path, "p")
    assert np.array_equal(whole, np.concatenate(values[2:]))
    assert tf.train.list_variables(path) == [("a", [2, 3]), ("n", []), ("p", [5, 2])]


def test_old_checkpoints_go(tmp_path):
    tf.Variable(1.0, name="v")
    saver = tf.train.Saver(max_to_keep=2)
    with started() as session:
        paths = [saver.save(session, str(tmp_path / "m"), step) for step in range(4)]
    assert saver.last_checkpoints == paths[2:]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert state.model_checkpoint_path == paths[3]
    assert list(state.all_model_checkpoint_paths) == paths[2:]
    names = {p.name for p in tmp_path.iterdir()}
    files = [f"m-{i}.{end}" for i in (2, 3) for end in ("index", "meta", "data-00000-of-00001")]
    assert names == {"checkpoint", *files}


def test_some_are_kept_for_good(tmp_path):
    tf.Variable(1.0)
    saver = tf.train.Saver(max_to_keep=1, keep_checkpoint_every_n_hours=1e-12)
    with started() as session:
        paths = [saver.save(session, str(tmp_path / "m"), step) for step in range(3)]
    assert all(map(tf.train.checkpoint_exists, paths))


def test_a_restarted_program_goes_on(tmp_path):
    v = tf.Variable(1.0)
    with started() as session:
        first = tf.train.Saver(max_to_keep=2)
        for step in range(2):
            first.save(session, str(tmp_path / "m"), step)
        state = tf.train.get_checkpoint_state(str(tmp_path))
        second = tf.train.Saver(max_to_keep=2)
        lost = str(tmp_path / "lost")
        second.recover_last_checkpoints([*state.all_model_checkpoint_paths, lost])
        second.save(session, str(tmp_path / "m"), 2)
        assert [p[-1] for p in second.last_checkpoints] == ["1", "2"]
        assert not tf.train.checkpoint_exists(str(tmp_path / "m-0"))
        session.run(v.assign(5.0))
        second.restore(session, tf.train.latest_checkpoint(str(tmp_path)))
        assert session.run(v) == 1.0


def test_names_of_steps_and_relative_paths(tmp_path):
    tf.Variable(1.0)
    step = tf.Variable(12, name="step", trainable=False)
    saver = tf.train.Saver(pad_step_number=True, save_relative_paths=True)
    with started() as session:
        path = saver.save(session, str(tmp_path / "m"), step, write_meta_graph=False)
    assert path.endswith("m-00000012")
    assert 'model_checkpoint_path: "m-00000012"' in (tmp_path / "checkpoint").read_text()
    moved = tmp_path.rename(tmp_path.parent / f"{tmp_path.name}_moved")
    assert tf.train.latest_checkpoint(moved) == str(moved / "m-00000012")


def test_names_of_ones_own_and_a_subset(tmp_path):
    a, b = tf.Variable(1.0, name="a"), tf.Variable(2.0, name="b")
    path = str(tmp_path / "m")
    with started() as session:
        tf.train.Saver({"x": a}).save(session, path)
        assert tf.train.list_variables(path) == [("x", [])]
        tf.train.Saver({"x": b}).restore(session, path)
        assert session.run(b) == 1.0


def test_tables_are_saved(tmp_path):
    table = MutableHashTable(tf.string, tf.int64, -1, name="table")
    fill = table.insert(["a", "b"], np.array([1, 2], np.int64))
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(fill)
        path = saver.save(session, str(tmp_path / "m"))
    with tf.Session() as session:
        saver.restore(session, path)
        assert session.run(table.lookup(tf.constant(["b", "c"]))).tolist() == [2, -1]


def test_the_graph_comes_with_it(tmp_path):
    variables()
    with started() as session:
        a = session.run("a:0")
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
    for scope, name in ((None, "a:0"), ("again", "again/a:0")):
        with tf.Graph().as_default(), tf.Session() as session:
            saver = tf.train.import_meta_graph(path + ".meta", import_scope=scope)
            saver.restore(session, path)
            assert np.array_equal(session.run(name), a)


def test_savers_in_a_collection_are_saved():
    tf.Variable(1.0)
    saver = tf.train.Saver(name="inner", max_to_keep=3)
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    message = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        tf.train.import_meta_graph(message)
        (found,) = tf.get_collection(tf.GraphKeys.SAVERS)
        assert found.saver_def.restore_op_name == "inner/restore_all"
    assert saver.to_proto("elsewhere") is None
    assert saver.to_proto("inner").restore_op_name == "restore_all"


def test_wrong_names_are_explained(tmp_path):
    tf.Variable([1.0], name="net/kernel")
    with started() as session:
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.Variable([1.0], name="kernel")
        saver = tf.train.Saver()
        with pytest.raises(tf.errors.NotFoundError) as error:
            saver.restore(session, path)
    text = str(error.value)
    assert "missing in the checkpoint: kernel" in text and "nearest to kernel: net/kernel" in text


def test_other_shapes_need_reshape(tmp_path):
    tf.get_variable("v", initializer=np.arange(6.0))
    with started() as session:
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", [2, 3], tf.float64)
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            tf.train.Saver().restore(session, path)
        assert "Restoring from checkpoint failed. This is most likely due to a mism" in str(
            error.value
        )
        assert f"checkpoint: {path}" in str(error.value)
        assert "inputs: v:0" in str(error.value) and "list_variables" in str(error.value)
        tf.train.Saver(reshape=True).restore(session, path)
        assert session.run(v).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_nothing_to_save(tmp_path):
    with pytest.raises(ValueError, match="No variables to save"):
        tf.train.Saver()
    empty = tf.train.Saver(allow_empty=True)
    with tf.Session() as session:
        assert empty.save(session, str(tmp_path / "m")) is None
        assert empty.restore(session, str(tmp_path / "m")) is None


def test_deferred(tmp_path):
    tf.Variable(1.0)
    saver = tf.train.Saver(defer_build=True)
    with started() as session:
        with pytest.raises(RuntimeError, match="build"):
            saver.save(session, str(tmp_path / "m"))
        saver.build()
        assert saver.save(session, str(tmp_path / "m"))


def test_wrong_arguments(tmp_path):
    v = tf.Variable(1.0, name="v")
    for bad, kind, message in (
        ([v, v], ValueError, "At least two variables have the same name: v"),
        ({"x": v, "y": v}, ValueError, "The same saveable will be restored with two names: y"),
        ([tf.constant(1)], TypeError, "Variable to save is not a Variable"),
        ({"x": tf.constant(1)}, TypeError, "Not a variable"),
        ({1: v}, TypeError, "Name is not a string: 1"),
        ("v", TypeError, "should be passed in a dict or a list"),
    ):
        with pytest.raises(kind, match=message):
            tf.train.Saver(bad)
    with pytest.raises(ValueError, match="build cannot be deferred"):
        tf.train.Saver([v], defer_build=True)
    saver = tf.train.Saver()
    with started() as session:
        for path, latest, kind, message in (
            ("x", "a/b", ValueError, "must not contain path components"),
            ("checkpoint", None, ValueError, "collides with 'save_path'"),
        ):
            with pytest.raises(kind, match=message):
                saver.save(session, str(tmp_path / path), latest_filename=latest)
        with pytest.raises(TypeError, match="must be a Session"):
            saver.save(None, str(tmp_path / "x"))
        with pytest.raises(ValueError, match="None"):
            saver.restore(session, None)
        with pytest.raises(ValueError, match="not a valid checkpoint"):
            saver.restore(session, str(tmp_path / "none"))


def test_a_directory_that_is_not_there(tmp_path):
    tf.Variable(1.0, name="v")
    saver, nowhere = tf.train.Saver(), tmp_path / "no" / "such"
    prefix, missing = str(nowhere / "m"), f"{nowhere}; No such file or directory"
    with started() as session:
        for restore in (
            lambda: saver.restore(session, prefix),
            lambda: tf.train.checkpoint_exists(prefix),
            lambda: tf.train.remove_checkpoint(prefix),
        ):
            with pytest.raises(tf.errors.NotFoundError) as error:
                restore()
            assert error.value.message == missing
        for read in (
            lambda: tf.train.list_variables(prefix),
            lambda: tf.train.load_variable(prefix, "v"),
            lambda: tf.train.Checkpoint(v=tf.global_variables()[0]).restore(prefix),
            lambda: session.run(
                tf.raw_ops.RestoreV2(
                    prefix=prefix, tensor_names=["v"], shape_and_slices=[""], dtypes=[tf.float32]
                )
            ),
        ):
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                read()
            assert error.value.message.endswith(f"matching files on {prefix}: Not found: {missing}")
        assert tf.train.latest_checkpoint(str(nowhere)) is None


def test_a_key_that_is_missing_is_said_in_the_usual_words(tmp_path):
    tf.Variable(1.0, name="v")
    with started() as session:
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
        tf.Variable(1.0, name="w")
        with pytest.raises(tf.errors.NotFoundError) as error:
            tf.train.Saver().restore(session, path)
    assert error.value.message == (
        "Restoring from checkpoint failed. This is most likely due to a Variable name or other "
        "graph key that is missing from the checkpoint. Please ensure that you have not altered "
        "the graph expected based on the checkpoint. Original error:\n\nKey w not found in "
        "checkpoint"
    )


def test_the_graph_written_beside_a_checkpoint_is_the_one_that_there_is(tmp_path):
    """Whatever has changed since the last save: nodes, shapes, attributes, collections."""
    x = tf.placeholder(tf.float32, name="x")
    v = tf.Variable(1.0, name="v")
    saver = tf.train.Saver()
    changes = [
        lambda: None,
        lambda: None,
        lambda: tf.add(x, v),
        lambda: x.set_shape([2]),
        lambda: v.op._set_device("/cpu:0"),
        lambda: tf.add_to_collection("kept", "a"),
    ]
    written = []
    with tf.Session() as session:
        session.run(v.initializer)
        for change in changes:
            change()
            path = saver.save(session, str(tmp_path / "m"))
            written.append((tmp_path / "m.meta").read_bytes())
            fresh = tf.train.export_meta_graph(saver_def=saver.saver_def)
            assert tf.MetaGraphDef.FromString(written[-1]) == fresh
    assert path and len(set(written)) == len(changes) - 1


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize(("sharded", "files"), [(True, 2), (False, 1)])
def test_variables_of_two_devices(tmp_path, sharded, files, use_resource):
    made = []
    for i in range(2):
        with tf.device(f"/cpu:{i}"):
            made.append(tf.get_variable(f"v{i}", initializer=i + 1.0, use_resource=use_resource))
    saver = tf.train.Saver(sharded=sharded)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(tf.global_variables_initializer())
        path = saver.save(session, str(tmp_path / "m"))
        session.run([v.assign(9.0) for v in made])
        saver.restore(session, path)
        assert session.run(made) == [1.0, 2.0]
    assert len(list(tmp_path.glob("m.data-*"))) == files
    assert [name for name, _ in tf.train.list_variables(path)] == ["v0", "v1"]


def _savers(meta_graph):
    found = meta_graph.collection_def["savers"].bytes_list.value
    return [type(meta_graph.saver_def).FromString(b).filename_tensor_name for b in found]


def test_a_meta_graph_without_other_savers():
    first, second = (
        tf.train.Saver({name: tf.Variable(1.0, name=name)}, name=f"save_{name}") for name in "ab"
    )
    assert not _savers(first.export_meta_graph(clear_extraneous_savers=True))
    tf.add_to_collection(tf.GraphKeys.SAVERS, first)
    tf.add_to_collection(tf.GraphKeys.SAVERS, second)
    assert len(_savers(first.export_meta_graph())) == 2
    for name, saver in (("save_a", first), ("save_b", second)):
        exported = saver.export_meta_graph(clear_extraneous_savers=True)
        assert _savers(exported) == [f"{name}/Const:0"]


@pytest.mark.parametrize(
    ("outer", "scope", "prefix"),
    [
        ("new", None, "new/"),
        ("a/b", None, "a/b/"),
        ("new/", None, "new/"),
        ("new", "inner", "new/inner/"),
        (None, "inner", "inner/"),
    ],
)
def test_a_meta_graph_is_imported_into_the_open_name_scope(tmp_path, outer, scope, prefix):
    tf.add_to_collection("doubled", tf.multiply(tf.Variable(1.0, name="v"), 2.0, name="w"))
    with started() as session:
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
    with tf.Graph().as_default() as graph, tf.Session() as session:
        with tf.name_scope(outer) if outer else contextlib.nullcontext():
            saver = tf.train.import_meta_graph(f"{path}.meta", import_scope=scope)
        saver.restore(session, path)
        assert {op.name.startswith(prefix) for op in graph.get_operations()} == {True}
        assert [v.name for v in tf.global_variables()] == [f"{prefix}v:0"]
        assert session.run(tf.get_collection("doubled")) == [2.0]
