"""Settings from the environment: defaults, good values, bad values."""

import dataclasses

import pytest

from headrace._src.core import config


def test_an_empty_environment_gives_the_defaults():
    assert config.read({}) == config.Settings()
    assert config.read({"HEADRACE_DNNL": "", "HEADRACE_NUM_THREADS": " "}) == config.Settings()


def test_every_variable_is_read():
    environment = {
        "HEADRACE_DNNL": "/lib/libdnnl.so.3",
        "HEADRACE_NO_ONEDNN": "1",
        "HEADRACE_NO_GENERATED": "1",
        "HEADRACE_VERIFY": "True",
        "HEADRACE_NUM_THREADS": "4",
        "HEADRACE_CACHE": "/var/cache/mine",
        "HEADRACE_CACHE_MB": "100",
    }
    assert config.read(environment) == config.Settings(
        "/lib/libdnnl.so.3", True, True, True, 4, "/var/cache/mine", 100
    )


def test_the_cache_is_where_the_system_keeps_caches_or_off():
    assert config.read({"XDG_CACHE_HOME": "/c"}).cache == "/c/headrace"
    assert config.read({"XDG_CACHE_HOME": "/c", "HEADRACE_CACHE": "/d"}).cache == "/d"
    assert config.read({"XDG_CACHE_HOME": "/c", "HEADRACE_CACHE": "off"}).cache == "off"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADRACE_VERIFY", "maybe"),
        ("HEADRACE_NO_ONEDNN", "2"),
        ("HEADRACE_NUM_THREADS", "0"),
        ("HEADRACE_NUM_THREADS", "-1"),
        ("HEADRACE_NUM_THREADS", "two"),
        ("HEADRACE_NUM_THREADS", "1.5"),
        ("HEADRACE_CACHE_MB", "lots"),
        ("HEADRACE_MEMORY_MB", "0"),
    ],
)
def test_bad_values_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*'{value}'"):
        config.read({name: value})


def test_settings_are_read_once_and_frozen(monkeypatch):
    config.settings.cache_clear()
    monkeypatch.setenv("HEADRACE_NUM_THREADS", "3")
    first = config.settings()
    monkeypatch.setenv("HEADRACE_NUM_THREADS", "5")
    assert config.settings() is first
    assert first.num_threads == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.num_threads = 7
    config.settings.cache_clear()


def test_how_steps_are_optimised():
    environment = {
        "HEADRACE_JIT": "Always",
        "HEADRACE_SPECIALISATIONS": "0",
        "HEADRACE_MEMORY_MB": "500",
        "HEADRACE_SWAP_DIR": "/var/tmp",
    }
    assert config.read(environment) == config.Settings(
        jit="always", specialisations=0, memory_mb=500, swap_dir="/var/tmp"
    )
    with pytest.raises(
        ValueError, match="HEADRACE_JIT must be one of off, auto, second, always: 'maybe'"
    ):
        config.read({"HEADRACE_JIT": "maybe"})
    with pytest.raises(ValueError, match=r"HEADRACE_SPECIALISATIONS must be .*'-1'"):
        config.read({"HEADRACE_SPECIALISATIONS": "-1"})


def test_how_processes_are_connected():
    environment = {
        "HEADRACE_TRANSPORT": "tcp",
        "HEADRACE_KEY_FILE": "/keys/cluster",
        "HEADRACE_LINK_MB": "64",
        "HEADRACE_SPIN_US": "0",
        "HEADRACE_HEARTBEAT_MS": "50",
        "HEADRACE_HEARTBEATS_MISSED": "3",
    }
    assert config.read(environment) == config.Settings(
        transport="tcp",
        key_file="/keys/cluster",
        link_mb=64,
        spin_us=0,
        heartbeat_ms=50,
        heartbeats_missed=3,
    )
    with pytest.raises(ValueError, match="HEADRACE_TRANSPORT must be one of auto, tcp: 'udp'"):
        config.read({"HEADRACE_TRANSPORT": "udp"})
    for name in ("HEADRACE_LINK_MB", "HEADRACE_HEARTBEAT_MS", "HEADRACE_HEARTBEATS_MISSED"):
        with pytest.raises(ValueError, match=rf"{name} must be .*'0'"):
            config.read({name: "0"})
