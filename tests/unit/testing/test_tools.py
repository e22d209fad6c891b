"""tf.test's tools: benchmarks, replaced attributes, captured streams, messages with versions."""

import os
import sys
import types

import pytest

import headrace as tf


class Times(tf.test.Benchmark):
    def benchmark_sum(self):
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.placeholder(tf.float32, [4])
            return self.run_op_benchmark(
                session, x + 1.0, {x: [1, 2, 3, 4]}, min_iters=3, extras={"k": 1}, mbs=2
            )


def test_a_benchmark_reports_the_median(capfd):
    found = Times().benchmark_sum()
    assert found["iters"] == 3
    assert found["wall_time"] > 0
    assert found["throughput"] == 2 / found["wall_time"]
    assert found["extras"]["k"] == 1
    assert found["extras"]["allocator_maximum_num_bytes_cpu"] == 16
    shown = capfd.readouterr().out
    assert 'name: "Times.benchmark_sum"' in shown
    assert "iters: 3" in shown


def test_benchmarks_run_on_request(capsys):
    tf.test.main(["program", "--benchmarks=Times.*sum"])
    assert "Times.benchmark_sum" in capsys.readouterr().out
    tf.test.main(["program", "--benchmarks=nothing"])
    assert capsys.readouterr().out == ""
    assert tf.test.Benchmark.is_abstract()
    assert not Times.is_abstract()
    assert tf.test.benchmark_config().graph_options.rewrite_options.dependency_optimization == 2


def test_a_report_may_have_texts_and_metrics(capsys):
    Times().report_benchmark(
        name="n", wall_time=1.5, extras={"a": "b"}, metrics=[{"name": "m", "value": 2.0}]
    )
    shown = capsys.readouterr().out
    assert 'string_value: "b"' in shown
    assert 'metrics {\n    name: "m"\n    value: 2.0\n  }' in shown


def test_replaced_attributes_are_put_back():
    class Base:
        value = 1

        @staticmethod
        def twice(x):
            return 2 * x

    class Derived(Base):
        pass

    module = types.ModuleType("m")
    module.f = 1
    with tf.test.StubOutForTesting() as stubs:
        stubs.Set(module, "f", 2)
        stubs.Set(Base, "twice", lambda x: 3 * x)
        stubs.SmartSet(Derived, "value", 5)
        stubs.SmartSet(module, "f", 7)
        assert (module.f, Base().twice(1), Base.value) == (7, 3, 5)
        with pytest.raises(AttributeError):
            stubs.SmartSet(Derived, "missing", 1)
        with pytest.raises(AttributeError):
            stubs.Set(module, "missing", 1)
    assert (module.f, Base().twice(1), Base.value) == (1, 2, 1)
    assert "value" not in vars(Derived)


class Case(tf.test.TestCase):
    def runTest(self):
        with self.captureWritesToStream(sys.__stderr__) as captured:
            os.write(2, b"some text")
            self.assertEqual(captured.contents(), "some text")
        self.assertEqual(captured.contents(), "some text")
        graph = tf.Graph()
        with graph.as_default():
            tf.no_op(name="n")
        self.assertProtoEqualsVersion("node { name: 'n' op: 'NoOp' }", graph.as_graph_def())


def test_streams_and_versions():
    result = Case().run()
    assert result.wasSuccessful(), result.failures + result.errors


def test_sources(monkeypatch):
    monkeypatch.setenv("TEST_SRCDIR", "/sources")
    assert tf.test.test_src_dir_path("a").endswith("sources/org_tensorflow/tensorflow/a")
    monkeypatch.delenv("TEST_SRCDIR")
    with pytest.raises(KeyError):
        tf.test.test_src_dir_path("a")
