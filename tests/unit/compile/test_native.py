"""Linking: what is compiled once is found again, in this process and on disk."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from headrace._src.compile.codegen.kernel_spec import generate
from headrace._src.compile.native import code_cache, machine_code
from headrace._src.compile.native.code_cache import CacheDirectory
from headrace._src.devices.target import host
from tests.unit.compile.plans import Scale


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A process that has compiled nothing, with an empty store."""
    store = CacheDirectory(tmp_path, 2**30)
    monkeypatch.setattr(code_cache, "store", lambda: store)
    monkeypatch.setattr(machine_code, "_addresses", {})
    return store


def run(spec):
    x, y = np.arange(spec.n, dtype=np.float32), np.zeros(spec.n, np.float32)
    machine_code.run_kernel(spec, [x, y])
    np.testing.assert_array_equal(y, x * np.float32(spec.a) + 1)


def test_a_kernel_is_generated_once_per_process(fresh, monkeypatch):
    calls = []

    def counting(*arguments, **options):
        calls.append(arguments[0])
        return generate(*arguments, **options)

    monkeypatch.setattr(machine_code, "generate", counting)
    specs = [Scale(10, 2.0), Scale(11, 2.0), Scale(10, 2.0)]
    first, second, third = machine_code.addresses(specs)
    assert first == third != second
    assert machine_code.addresses(specs[1:2]) == [second]
    assert calls == specs[:2]
    assert machine_code.addresses(specs[:1], serial=True) != [first]


def test_a_later_process_takes_it_from_disk(fresh, monkeypatch):
    run(Scale(100, 3.0))
    monkeypatch.setattr(machine_code, "_addresses", {})

    def refuse(*_, **__):
        raise AssertionError("generated again")

    monkeypatch.setattr(machine_code, "generate", refuse)
    run(Scale(100, 3.0))
    with pytest.raises(AssertionError, match="generated again"):
        run(Scale(100, 4.0))


def test_damaged_objects_are_compiled_anew(fresh, monkeypatch):
    run(Scale(100, 5.0))
    for path in (fresh.directory / "objects").iterdir():
        path.write_bytes(path.read_bytes()[:-8] + b"garbage!")
    monkeypatch.setattr(machine_code, "_addresses", {})
    run(Scale(100, 5.0))
    monkeypatch.setattr(machine_code, "_addresses", {})
    assert all(fresh.get("objects", p.name) for p in (fresh.directory / "objects").iterdir())


def test_many_threads_may_ask_at_once(fresh):
    specs = [Scale(n, 2.0) for n in range(20, 26)]
    start = threading.Barrier(4)

    def ask(_):
        start.wait()
        return machine_code.addresses(specs)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(ask, range(4)))
    assert all(r == results[0] for r in results)


def test_assembling_at_once_gives_the_same_code(fresh):
    texts = [generate(Scale(n, 2.0), "symbol", host()) for n in range(200, 216)]
    one_by_one = [machine_code.assemble(t) for t in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(machine_code.assemble, texts)) == one_by_one


def test_a_text_that_is_no_program_is_an_error():
    with pytest.raises(RuntimeError):
        machine_code.assemble("define nonsense")
