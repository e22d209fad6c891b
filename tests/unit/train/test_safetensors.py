"""Variables in safetensors files: saved, loaded, restored, converted."""

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as tf
from headrace._src.cli import main


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("whole", initializer=np.arange(6.0).reshape(2, 3))
        tf.get_variable("half", initializer=np.ones(4), dtype=None, use_resource=True)
        parts = tf.fixed_size_partitioner(2)
        tf.get_variable("parts", [5, 2], partitioner=parts, initializer=tf.ones_initializer())
        session.run(tf.global_variables_initializer())
        yield session


def values(session):
    return [value.tolist() for value in session.run(tf.global_variables())]


def change(session):
    session.run([tf.assign(v, v * 2 + 1) for v in tf.global_variables()])


def test_a_sessions_variables(session, tmp_path):
    path, before = tmp_path / "m.safetensors", values(session)
    tf.train.save_safetensors(session, path, metadata={"made by": "a test"})
    assert tf.train.list_variables(path) == [("half", [4]), ("parts", [5, 2]), ("whole", [2, 3])]
    change(session)
    assert tf.train.load_safetensors(session, path) == {"made by": "a test"}
    assert values(session) == before
    change(session)
    tf.train.Saver().restore(session, path)
    assert values(session) == before


def test_other_names(session, tmp_path):
    path, (whole, *_) = tmp_path / "m.safetensors", tf.global_variables()
    tf.train.save_safetensors(session, path, {"net/weight": whole})
    with pytest.raises(tf.errors.NotFoundError) as error:
        tf.train.load_safetensors(session, path)
    assert "missing in the checkpoint: whole, half, parts" in str(error.value)
    assert "not asked for: net/weight" in str(error.value)
    change(session)
    tf.train.load_safetensors(session, path, {"net/weight": whole})
    assert session.run(whole).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_other_types(session, tmp_path):
    path, (whole, half, *_) = tmp_path / "m.safetensors", tf.global_variables()
    tf.train.save_safetensors(session, path, {"whole": half})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"float64\[4\] in the file"):
        tf.train.load_safetensors(session, path, [whole])
    with pytest.raises(TypeError, match="expected variables"):
        tf.train.load_safetensors(session, path, [tf.constant(1.0)])


def run(*arguments):
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def test_the_command(session, tmp_path):
    saver, path = tf.train.Saver(), tmp_path / "m.safetensors"
    saver.save(session, str(tmp_path / "model"), 3, write_meta_graph=False)
    result = run(tmp_path, path)
    assert result.exit_code == 0, result.output
    assert "m.safetensors: 120 bytes of tensors" in result.output
    assert run(path, tmp_path / "again").exit_code == 0
    before = values(session)
    change(session)
    saver.restore(session, str(tmp_path / "again"))
    assert values(session) == before


def test_what_the_command_says_of_mistakes(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"garbage")
    assert "the header is longer" in run(tmp_path / "x.safetensors", tmp_path / "y").output
    assert "No such file" in run(tmp_path / "none.safetensors", tmp_path / "y").output
    result = run(tmp_path, tmp_path / "y")
    assert result.exit_code == 1 and "Couldn't find 'checkpoint' file" in result.output
