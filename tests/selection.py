"""Which tests are run: pytest's options --quick and --without, and the markers that they go by.

tests/README.md explains both. Directories and files are listed here; single tests carry a marker.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import pytest

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]

MARKERS = {
    "needs_llvm": "the test is about compiled code, or about compiling: it needs llvmlite",
    "needs_onednn": "the test is about oneDNN's kernels",
    "needs_jax": "the test is about XLA devices",
    "slow": "the test takes long, there are many like it, or no package can change its outcome: "
    "--quick leaves it out",
}

# Paths below tests/, and the markers of all tests there.
PLACES = {
    "faults": ["slow"],
    "faults/clusters/test_chaos.py": ["needs_llvm"],
    "faults/test_clusters.py": ["needs_llvm"],
    "golden/test_plans.py": ["needs_llvm"],
    "laws/test_bad_input.py": ["slow"],
    "laws/test_compiled.py": ["needs_llvm", "slow"],
    "laws/test_fresh.py": ["slow"],
    "laws/test_generated_kernels.py": ["needs_llvm", "slow"],
    "laws/test_gradient_counts.py": ["slow"],
    "laws/test_lowering.py": ["slow"],
    "laws/test_names.py": ["slow"],
    "laws/test_schemas.py": ["slow"],
    "laws/test_xla.py": ["needs_jax", "slow"],
    "oracle/test_shape_rules.py": ["slow"],
    "oracle/test_static_shapes.py": ["slow"],
    "programs/test_ahead.py": ["needs_llvm", "slow"],
    "programs/test_documents.py": ["slow"],
    "programs/test_examples.py": ["slow"],
    "programs/test_run_programs.py": ["slow"],
    "programs/test_sent_steps.py": ["slow"],
    "programs/test_types.py": ["slow"],
    "programs/test_xla_coverage.py": ["slow"],
    "programs/test_xla_sessions.py": ["needs_jax"],
    "property": ["slow"],
    "unit/checkpoint": ["slow"],
    "unit/cli/test_doctor.py": ["needs_llvm", "needs_onednn"],
    "unit/compile": ["needs_llvm", "slow"],
    "unit/compat": ["slow"],
    "unit/core": ["slow"],
    "unit/compile/test_conv_onednn.py": ["needs_onednn"],
    "unit/compile/test_foreign.py": ["needs_onednn"],
    "unit/devices/test_onednn_convolution.py": ["needs_onednn"],
    "unit/devices/test_onednn_library.py": ["needs_onednn"],
    "unit/devices/test_onednn_matmul.py": ["needs_onednn"],
    "unit/devices/test_onednn_pooling.py": ["needs_onednn"],
    "unit/devices/test_onednn_softmax.py": ["needs_onednn"],
    "unit/distributed": ["slow"],
    "unit/estimator": ["slow"],
    "unit/summary": ["slow"],
    "unit/test_class_names.py": ["slow"],
    "unit/test_generated.py": ["slow"],
    "unit/test_python_modules.py": ["slow"],
    "unit/test_symbols.py": ["slow"],
    "unit/xla": ["needs_jax", "slow"],
}

PACKAGES = {"llvmlite": "needs_llvm", "onednn": "needs_onednn", "jax": "needs_jax"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the tests that are slow")
    parser.addoption(
        "--without",
        action="append",
        choices=sorted(PACKAGES),
        default=[],
        help="leave out the tests that need this package, which must be absent",
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")
    for package in config.option.without:
        if _is_present(package):
            raise pytest.UsageError(
                f"--without {package}: the package is there; use scripts/check_without"
            )


def _is_present(package: str) -> bool:
    if package != "onednn":
        return importlib.util.find_spec(package) is not None
    from headrace._src.devices import onednn

    return onednn.available()


@cache
def _markers_of(file: Path) -> list[str]:
    here = Path(__file__).parent
    found = [markers for place, markers in PLACES.items() if file.is_relative_to(here / place)]
    return [marker for markers in found for marker in markers]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unwanted = {PACKAGES[package] for package in config.option.without}
    if config.option.quick:
        unwanted.add("slow")
    kept, left_out = [], []
    for item in items:
        for marker in _markers_of(item.path):
            item.add_marker(marker)
        has_any = any(marker.name in unwanted for marker in item.iter_markers())
        (left_out if has_any else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
