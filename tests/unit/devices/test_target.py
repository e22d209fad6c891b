"""What is known of a processor, and how HEADRACE_TARGET narrows it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace._src.devices import target
from headrace._src.devices.target import (
    LEVELS,
    cores_share_a_cache,
    describe,
    for_level,
    narrowed,
    usable_cores,
)

V2 = "fpu sse sse2 pni ssse3 cx16 sse4_1 sse4_2 popcnt"
V3 = f"{V2} fma movbe avx f16c abm bmi1 avx2 bmi2"
V4 = f"{V3} avx512f avx512dq avx512cd avx512bw avx512vl"


def processor(flags: str, machine: str = "x86_64", **fields: str) -> target.Target:
    return describe({"flags": flags, **fields}, machine, "Linux")


@pytest.mark.parametrize(
    ("flags", "level", "vector_bytes", "registers", "block"),
    [
        ("fpu sse sse2", "", 16, 16, 4),
        (V2, "x86-64-v2", 16, 16, 4),
        (f"{V2} avx", "x86-64-v2", 16, 16, 4),
        (V3, "x86-64-v3", 32, 16, 8),
        (f"{V3} avx512f", "x86-64-v3", 32, 16, 8),  # as the first processors with AVX-512 had it
        (V4, "x86-64-v4", 64, 32, 16),
    ],
)
def test_vectors_are_as_wide_as_the_flags_say(flags, level, vector_bytes, registers, block):
    found = processor(flags)
    assert (found.level, found.block) == (level, block)
    assert (found.vector_bytes, found.registers) == (vector_bytes, registers)


def test_extensions_that_decisions_depend_on():
    zen3, zen4 = processor(V3), processor(f"{V4} avx512_bf16 avx512_vnni")
    assert zen3.fma and not zen3.bfloat16 and not zen3.vnni
    assert zen4.fma and zen4.bfloat16 and zen4.vnni and zen4.has("avx512bf16")
    assert processor(f"{V3} avx_vnni").vnni
    assert not processor(V2).fma


def test_arm_has_neon_whatever_else_is_known():
    for machine in ("aarch64", "arm64"):
        found = describe({"CPU implementer": "0x41", "CPU part": "0xd0c"}, machine, "Linux")
        assert (found.vector_bytes, found.registers, found.level) == (16, 32, "")
        assert found.fma and found.model == "0x41 0xd0c"


def test_an_unknown_processor_gets_the_least():
    found = describe({}, "riscv64", "Plan9")
    assert (found.vector_bytes, found.registers, found.level) == (16, 16, "")


def test_processors_of_one_kind_share_their_timings():
    names = {"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "33"}
    assert processor(V3, **names).model == "AuthenticAMD 25 33"
    assert processor(V3, **names) != processor(V3, **{**names, "model": "17"})


def test_a_level_hides_what_is_above_it():
    wide = processor(f"{V4} avx512_bf16 avx512_vnni")
    assert narrowed(wide, "host") is wide
    for level, described in LEVELS.items():
        found = narrowed(wide, level)
        assert found.level == level == found.cpu and not found.bfloat16
        assert found.vector_bytes == described.vector_bytes == for_level(level).vector_bytes
        assert (found.caches, found.cores) == (wide.caches, wide.cores)


def test_a_level_that_the_processor_has_not_is_refused():
    with pytest.raises(
        ValueError, match="x86-64-v4: this processor can't run that, it is x86-64-v3"
    ):
        narrowed(processor(V3), "x86-64-v4")
    arm = describe({}, "aarch64", "Linux")
    with pytest.raises(ValueError, match="aarch64, which has no such levels"):
        narrowed(arm, "x86-64-v2")


def cgroups(tmp_path, lines: str, files: dict[str, str]) -> list[float]:
    (tmp_path / "cgroup").write_text(lines)
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(target._quotas(tmp_path / "fs", tmp_path / "cgroup"))


def test_quotas_of_cgroups(tmp_path):
    files = {
        "a/b/cpu.max": "150000 100000\n",
        "a/cpu.max": "max 100000\n",
        "cpu.max": "400000 100000",
    }
    assert cgroups(tmp_path, "0::/a/b\n", files) == [1.5, 4.0]


def test_quotas_of_cgroups_of_version_1(tmp_path):
    files = {
        "cpu/job/cpu.cfs_quota_us": "200000\n",
        "cpu/job/cpu.cfs_period_us": "100000\n",
        "cpu/cpu.cfs_quota_us": "-1\n",
        "cpu/cpu.cfs_period_us": "100000\n",
    }
    lines = "4:memory:/job\n2:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n"
    assert cgroups(tmp_path, lines, files) == [2.0]


def test_no_cgroups_no_quotas(tmp_path):
    assert cgroups(tmp_path, "0::/nowhere\n", {"cpu.max": "broken"}) == []
    assert list(target._quotas(tmp_path, tmp_path / "missing")) == []


@pytest.mark.parametrize(("quota", "cores"), [(0.2, 1), (1.2, 1), (1.6, 2), (64.0, None)])
def test_cores_are_those_that_quotas_leave(monkeypatch, quota, cores):
    monkeypatch.setattr(target, "_quotas", lambda: [quota])
    affinity = len(os.sched_getaffinity(0))
    assert usable_cores() == min(affinity, cores or affinity)


SHOW = """
from headrace._src.devices import onednn, openmp
from headrace._src.devices.target import host
print(host().level, host().cpu, host().cores, openmp.thread_count())
"""


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HEADRACE_TARGET": "host", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def own_level() -> str:
    """The level of this machine, however these tests are narrowed."""
    return run(SHOW).split()[0]


@pytest.mark.parametrize("level", list(LEVELS))
def test_the_setting_narrows_a_process(level):
    if level > own_level():
        code = f"import pytest, {target.__name__} as t\nwith pytest.raises(ValueError): t.host()"
        run(code, HEADRACE_TARGET=level)
    else:
        assert run(SHOW, HEADRACE_TARGET=level).split()[:2] == [level, level]


def test_a_process_on_one_core_has_a_team_of_one():
    first = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{first}])\n{SHOW}"
    assert run(code).split()[2:] == ["1", "1"]


@pytest.mark.needs_onednn
def test_onednn_keeps_to_the_level():
    code = "from headrace._src.devices.onednn.library import library; print(library().instructions)"
    names = {"x86-64-v2": "SSE41", "x86-64-v3": "AVX2", "x86-64-v4": "AVX512_CORE"}
    own = own_level()
    for level, name in names.items():
        if level <= own:
            assert run(code, HEADRACE_TARGET=level).strip() == name
    assert run(code, ONEDNN_MAX_CPU_ISA="SSE41").strip() == "SSE41"


def test_a_description_is_one_line():
    text = str(processor(f"{V4} avx512_vnni"))
    assert text == (
        "x86-64-v4, 512-bit vectors in 32 registers, fma vnni, "
        "caches of 32 KiB, 1024 KiB, 16384 KiB, 1 core"
    )


@pytest.mark.parametrize(("third", "shared"), [("0-3", True), ("0-1", False), (None, False)])
def test_whether_all_cores_share_a_cache(tmp_path, third, shared):
    (tmp_path / "online").write_text("0-3\n")
    for number, cores in enumerate(["0", "0", third]):
        if cores is not None:
            entry = tmp_path / "cpu0" / "cache" / f"index{number}"
            entry.mkdir(parents=True)
            (entry / "shared_cpu_list").write_text(f"{cores}\n")
    assert cores_share_a_cache(tmp_path) is shared


def test_a_system_that_says_nothing_of_caches(tmp_path):
    assert not cores_share_a_cache(tmp_path)
