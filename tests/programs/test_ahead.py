"""Whole models: built and frozen here, compiled by the command, run from C, qemu and Node, and
compared with the session. Every result agrees within 1e-5.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as tf
from headrace._src.cli import main
from headrace._src.compile.ahead import ARCHITECTURES, Artifact, target_for
from headrace._src.compile.ahead.elf import Elf
from headrace._src.compile.ahead.model import read_model
from headrace._src.compile.native import machine_code
from headrace._src.core import proto
from headrace._src.graph.graph_io import write_message
from headrace._src.pipeline.ahead import compile_model
from tests.unit.compile import ahead_runs

Rng = np.random.Generator


def variable(rng: Rng, *shape: int) -> tf.Variable:
    """A variable whose layer keeps the size of what goes through."""
    scale = (2 / np.prod(shape[:-1])) ** 0.5 if len(shape) > 1 else 0.1
    return tf.Variable((rng.standard_normal(shape) * scale).astype(np.float32))


def perceptron(rng: Rng) -> tf.Tensor:
    h = tf.placeholder("float32", [None, 784], name="x")
    for inputs, outputs in ((784, 256), (256, 256)):
        h = tf.nn.relu(tf.matmul(h, variable(rng, inputs, outputs)) + variable(rng, outputs))
    logits = tf.matmul(h, variable(rng, 256, 10)) + variable(rng, 10)
    return tf.nn.softmax(logits)


def convolution(rng: Rng, x: tf.Tensor, filters: int, size: int, stride: int = 1) -> tf.Tensor:
    weights = variable(rng, size, size, x.shape[3].value, filters)
    return tf.nn.conv2d(x, weights, strides=[1, stride, stride, 1], padding="SAME")


def convolutional(rng: Rng) -> tf.Tensor:
    """Convolutions of all kinds, poolings, batch normalisation and a joint of two branches."""
    x = tf.placeholder("float32", [None, 28, 28, 1], name="x")
    h = tf.nn.relu(tf.nn.bias_add(convolution(rng, x, 32, 5), variable(rng, 32)))
    h = tf.nn.lrn(tf.nn.max_pool2d(h, 2, 2, "SAME"), alpha=0.1)
    h = tf.nn.depthwise_conv2d(h, variable(rng, 3, 3, 32, 1), [1, 1, 1, 1], "SAME")
    scale, offset, mean = (variable(rng, 32) for _ in range(3))
    variance = tf.Variable(rng.uniform(0.5, 2, 32).astype(np.float32))
    h, _, _ = tf.nn.fused_batch_norm(h, 1 + scale, offset, mean, variance, is_training=False)
    h = tf.concat([tf.nn.relu6(convolution(rng, h, 20, 3)), tf.tanh(convolution(rng, h, 7, 1))], 3)
    h = tf.nn.avg_pool2d(convolution(rng, h, 64, 3, stride=2), 3, 2, "VALID")
    h = tf.nn.elu(tf.matmul(tf.reshape(h, [-1, 3 * 3 * 64]), variable(rng, 576, 50)))
    return tf.nn.softmax(tf.matmul(h, variable(rng, 50, 10)) + variable(rng, 10))


def recurrent(rng: Rng) -> tf.Tensor:
    """An embedding and three steps of a cell with gates."""
    words = tf.placeholder("int32", [None, 3], name="x")
    batch = tf.shape(words)[0]
    x = tf.nn.embedding_lookup(variable(rng, 50, 16), words)
    weights, bias = variable(rng, 40, 48), variable(rng, 48)
    h = tf.zeros(tf.stack([batch, 24]))
    for step in tf.unstack(x, 3, axis=1):
        gate, new = tf.split(tf.matmul(tf.concat([step, h], 1), weights) + bias, 2, axis=1)
        keep = tf.sigmoid(gate)
        h = h * keep + (1 - keep) * tf.tanh(new)
    return tf.nn.log_softmax(tf.matmul(h, variable(rng, 24, 5)))


def attentive(rng: Rng) -> tf.Tensor:
    """Self-attention with two heads, and a normalised sum."""
    x = tf.placeholder("float32", [None, 6, 16], name="x")
    projected = tf.tensordot(x, variable(rng, 16, 48), 1)
    query, key, value = (
        tf.transpose(tf.reshape(p, [-1, 6, 2, 8]), [0, 2, 1, 3])
        for p in tf.split(projected, 3, axis=2)
    )
    weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / 8**0.5)
    mixed = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
    y = x + tf.reshape(mixed, [-1, 6, 16])
    mean, variance = tf.nn.moments(y, 2, keep_dims=True)
    return (y - mean) * tf.rsqrt(variance + 1e-6) * variable(rng, 16)


def frozen(
    network: Callable[[Rng], tf.Tensor], batch: int
) -> tuple[proto.GraphDef, dict, np.ndarray]:
    """The network as a graph without variables, an input, and what the session makes of it."""
    rng = np.random.default_rng(5)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        y = tf.identity(network(rng), name="y")
        x = graph.get_tensor_by_name("x:0")
        shape = (batch, *x.shape.as_list()[1:])
        given = rng.normal(5, 2, shape) if x.dtype.is_integer else rng.standard_normal(shape)
        given = np.abs(given).astype(x.dtype.as_numpy_dtype)
        session.run(tf.global_variables_initializer())
        expected = session.run(y, {x: given})
        definition = graph.as_graph_def()
        return (
            tf.graph_util.convert_variables_to_constants(session, definition, ["y"]),
            {"x": given},
            expected,
        )


def compiled(graph_def: proto.GraphDef, architecture: str, **more) -> Artifact:
    model = read_model(graph_def, **more)
    target = target_for(architecture)
    return compile_model(model, target, name="model", stem="model", origin="test")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("network", [perceptron, convolutional, recurrent, attentive])
def test_models(network, architecture, tmp_path):
    graph_def, given, expected = frozen(network, batch=3)
    artifact = compiled(graph_def, architecture, batch=3)
    assert artifact.interface.outputs[0].shape == expected.shape
    if architecture != "wasm32":
        assert Elf(artifact.object).undefined == set()
    if ahead_runs.runs_here(architecture, target_for(architecture)):
        (y,) = ahead_runs.run(artifact, architecture, given, tmp_path)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)


def test_several_inputs_and_outputs(tmp_path):
    with tf.Graph().as_default() as graph, tf.Session() as session:
        unused = tf.placeholder("float64", [2], name="unused")
        n = tf.placeholder("int32", [3, 4], name="n")
        x = tf.placeholder("float32", [3, 4], name="x")
        flags = tf.greater(x, 0.0, name="flags")
        chosen = tf.where(flags, tf.cast(n, "float32"), x, name="chosen")
        total = tf.reduce_sum(n, 1, name="total")
        ends = [total, flags, tf.identity(n, name="same"), tf.constant([7.0], name="seven"), chosen]
        rng = np.random.default_rng(2)
        given = {
            "unused": np.zeros(2),
            "n": rng.integers(-9, 9, (3, 4)).astype(np.int32),
            "x": rng.standard_normal((3, 4)).astype(np.float32),
        }
        expected = session.run(ends, {n: given["n"], x: given["x"]})
        names = [unused.op.name, n.op.name, x.op.name]
        outputs = [t.op.name for t in ends]
        artifact = compiled(graph.as_graph_def(), "wasm32", inputs=names, outputs=outputs)
    assert [str(p) for p in artifact.interface.outputs] == [
        "total int32[3]",
        "flags bool[3,4]",
        "same int32[3,4]",
        "seven float32[1]",
        "chosen float32[3,4]",
    ]
    if ahead_runs.runs_here("wasm32", target_for("wasm32")):
        results = ahead_runs.run(artifact, "wasm32", given, tmp_path)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)


# ---- The command ---------------------------------------------------------------------------------


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder("float32", [None, 4], name="x")
        tf.nn.relu(x * 2.0, name="y")
        write_message(tmp_path / "net.pb", graph.as_graph_def(), as_text=False)
    return tmp_path / "net.pb"


def run_command(*arguments: str | Path):
    return CliRunner().invoke(main, ["compile", *map(str, arguments)])


@pytest.mark.parametrize(
    ("architecture", "out", "files"),
    [
        ("x86_64", "small.o", ["small.h", "small.o"]),
        ("aarch64", "small", ["small.h", "small.o"]),
        ("wasm32", "small.wasm", ["small.h", "small.mjs", "small.wasm"]),
        ("wasm32", "small.o", ["small.h", "small.o"]),
        ("wasm32", "small.v2", ["small.v2.h", "small.v2.mjs", "small.v2.wasm"]),
    ],
)
def test_files(model_file, tmp_path, architecture, out, files):
    where = tmp_path / "made"
    where.mkdir()
    done = run_command(model_file, "--target", architecture, "-o", where / out, "--batch", "2")
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in where.iterdir()) == files
    assert all(name in done.output for name in files)
    header = (where / files[0]).read_text()
    name = "small" if files[0] == "small.h" else "small_v2"
    assert f"int {name}(\n    const float* x,\n    float* y,\n    void* workspace);" in header
    assert "x float32[2,4]" in header


def test_text_and_names(model_file, tmp_path):
    message = proto.GraphDef.FromString(model_file.read_bytes())
    write_message(tmp_path / "net.pbtxt", message, as_text=True)
    options = ["--input", "x:3,4", "--output", "mul", "--name", "twice", "--cpu", "x86-64-v2"]
    out = tmp_path / "other.o"
    done = run_command(tmp_path / "net.pbtxt", "--target", "x86_64", "-o", out, *options)
    assert done.exit_code == 0, done.output
    assert Elf(out.read_bytes()).exported == {"twice", "twice_workspace_size"}
    assert "#define TWICE_MUL_SHAPE {3, 4}" in (tmp_path / "other.h").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "say --input x:SIZE,SIZE,…, or --batch N"),
        (["--batch", "1", "--cpu", "z80"], "no processor 'z80' of x86_64"),
        (["--batch", "1", "--name", "no-name"], "'no-name' can't be a function's name"),
        (["--output", "z"], "the graph has no tensor 'z'"),
        (["--target", "mips"], "'mips' is not one of"),
        (["--batch", "1", "-o", "x.wasm"], "this target makes an object file: name it with .o"),
        (["--batch", "1", "-o", "nowhere/x.o"], "nowhere/x.o"),
    ],
)
def test_mistakes_are_told(model_file, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out.o"
    done = run_command(model_file, "--target", "x86_64", "-o", out, *options)
    assert done.exit_code != 0
    assert message in done.output
    assert [p.name for p in tmp_path.iterdir()] == [model_file.name]


def test_without_llvm(model_file, tmp_path, monkeypatch):
    monkeypatch.setattr(machine_code, "why_not", lambda: "llvmlite is missing")
    done = run_command(model_file, "--target", "x86_64", "-o", tmp_path / "out.o")
    assert (done.exit_code, done.output) == (1, "Error: llvmlite is missing\n")


def test_a_broken_file(tmp_path):
    (tmp_path / "broken.pb").write_bytes(b"\xff\xff\xff")
    done = run_command(tmp_path / "broken.pb", "--target", "x86_64", "-o", tmp_path / "out.o")
    assert done.exit_code == 1
    assert "Cannot parse file" in done.output


def test_what_can_not_be_compiled_is_named(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder("float32", [4, 4], name="x")
        tf.matrix_inverse(x, name="turned")
        tf.Variable(1.0, name="v", use_resource=True).read_value()
    with pytest.raises(ValueError, match=r"can't be compiled ahead of time: turned \(MatrixInv"):
        compiled(graph.as_graph_def(), "x86_64", outputs=["turned"])
    with pytest.raises(ValueError, match=r"reads a variable|ahead of time: v"):
        compiled(graph.as_graph_def(), "x86_64", outputs=["v/Read/ReadVariableOp"])


# ---- The document --------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    text = (Path(__file__).parents[2] / "docs" / "ahead_of_time.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_document(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (python,) = blocks("python")
    with tf.Graph().as_default():
        exec(compile(python, "ahead_of_time.md", "exec"), {})
    commands, c_command = blocks("sh")
    for command in commands.splitlines():
        done = CliRunner().invoke(main, command.split()[1:])
        assert done.exit_code == 0, done.output
    line, _, expected = c_command.strip().partition("#")
    (c_code,), (js_code,) = blocks("c"), blocks("js")
    Path("main.c").write_text(c_code)
    Path("main.mjs").write_text(js_code)
    programs = []
    if ahead_runs.runs_here("x86_64", target_for("x86_64")) and platform.machine() == "x86_64":
        programs.append(line)
    if ahead_runs.runs_here("wasm32", target_for("wasm32")):
        programs.append("node main.mjs")
    for program in programs:
        shown = subprocess.run(program, shell=True, check=True, capture_output=True, text=True)
        assert shown.stdout.split() == expected.split()
