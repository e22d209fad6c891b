"""OpenMP's runtime: how many threads, and why none."""

import os

import pytest

from headrace._src.core.config import Settings
from headrace._src.devices import openmp


@pytest.fixture
def fresh(monkeypatch):
    """As before the first use."""
    monkeypatch.setattr(openmp, "_threads", None)
    monkeypatch.setattr(openmp, "_loaded", False)
    monkeypatch.setattr(openmp, "settings", Settings)


def test_the_first_request_before_the_first_use_counts(fresh, monkeypatch):
    openmp.request_threads(3)
    openmp.request_threads(5)
    assert openmp.thread_count() == 3
    monkeypatch.setattr(openmp, "settings", lambda: Settings(num_threads=2))
    assert openmp.thread_count() == 2


def test_a_request_after_the_first_use_is_too_late(fresh, monkeypatch):
    monkeypatch.setattr(openmp, "_loaded", True)
    before = openmp.thread_count()
    openmp.request_threads(before + 1)
    assert openmp.thread_count() == before


def test_without_the_library_there_is_one_thread(fresh, monkeypatch):
    monkeypatch.setattr(openmp, "_load", lambda: "libgomp is gone")
    assert openmp.library() is None
    assert openmp.thread_count() == 1
    assert openmp.why_not() == "libgomp is gone"


def test_a_forked_child_has_one_thread(fresh, monkeypatch):
    monkeypatch.setattr(openmp, "_forked", True)
    assert openmp.library() is None
    assert openmp.thread_count() == 1
    assert "forked" in openmp.why_not()


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_what_the_user_chose_is_not_changed(monkeypatch, name):
    for n in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(n, raising=False)
    with openmp.environment():
        assert os.environ["GOMP_SPINCOUNT"] == "1000"
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv(name, "active")
    with openmp.environment():
        assert os.environ.get("GOMP_SPINCOUNT") != "1000"
    assert os.environ[name] == "active"
