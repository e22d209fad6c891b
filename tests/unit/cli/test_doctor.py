"""`headrace doctor` reports what is installed, what is missing, and whether that is a fault."""

import pytest
from click.testing import CliRunner

from headrace._src.cli import doctor, main
from headrace._src.compile.native import code_cache, machine_code
from headrace._src.compile.native.code_cache import CacheDirectory
from headrace._src.devices import onednn, openmp


@pytest.fixture(autouse=True)
def healthy(monkeypatch, tmp_path):
    store = CacheDirectory(tmp_path, 2**20)
    monkeypatch.setattr(code_cache, "store", lambda: store)
    for module in (machine_code, openmp, onednn):
        monkeypatch.setattr(module, "why_not", lambda: None)
    return store


def run(*arguments):
    return CliRunner().invoke(main, ["doctor", *arguments], env={"COLUMNS": "200"})


def test_all_is_well(healthy):
    healthy.put("objects", "a", bytes(1000))
    result = run()
    assert result.exit_code == 0, result.output
    for part in ("numpy", "vectors", "OpenMP, teams of", "1 entries", "of 1024 MiB"):
        assert part in result.output
    assert "!!" not in result.output


@pytest.mark.parametrize("module", [machine_code, openmp])
def test_what_is_missing_is_a_fault_and_has_a_reason(monkeypatch, module):
    monkeypatch.setattr(module, "why_not", lambda: "it went missing")
    result = run()
    assert result.exit_code == 1
    assert "it went missing" in result.output


def test_being_without_onednn_by_choice_is_no_fault(monkeypatch):
    from headrace._src.core.config import Settings

    monkeypatch.setattr(onednn, "why_not", lambda: "switched off")
    monkeypatch.setattr(doctor, "settings", lambda: Settings(no_onednn=True))
    result = run()
    assert result.exit_code == 0
    assert "switched off" in result.output


def test_an_unusable_cache_is_a_fault(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    store = CacheDirectory(tmp_path / "file", 2**20)
    monkeypatch.setattr(code_cache, "store", lambda: store)
    result = run()
    assert result.exit_code == 1
    assert "not used" in result.output


def test_a_cache_that_is_off_is_no_fault(monkeypatch):
    store = CacheDirectory(None, 2**20)
    monkeypatch.setattr(code_cache, "store", lambda: store)
    assert run().exit_code == 0


def test_measuring_prints_rates():
    result = run("--measure")
    assert result.exit_code == 0
    assert result.output.count("GF/s") == 2
    assert "GB/s" in result.output


def test_an_unknown_command_is_named():
    result = CliRunner().invoke(main, ["nurse"])
    assert result.exit_code == 2
    assert "nurse" in result.output
