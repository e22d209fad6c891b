"""matplotlib without a display. In: figures that a program shows. Out: PNG files, and their names
on stdout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace._src.compat.notices import notice
from headrace._src.core.config import has_display

__all__ = ["PATCHES"]


def _patch_matplotlib(matplotlib: ModuleType) -> None:
    if has_display():
        return
    use = matplotlib.use
    use("Agg")

    def choose(backend: str, *args: Any, **kwargs: Any) -> None:
        """Choose the backend that a program asks for, if it needs no display."""
        if backend.lower() in ("agg", "pdf", "ps", "svg", "cairo"):
            use(backend)

    matplotlib.use = functools.wraps(use)(choose)  # type: ignore


def _patch_pyplot(pyplot: ModuleType) -> None:
    if has_display():
        return
    saved: set[Any] = set()

    def show(*args: Any, **kwargs: Any) -> None:
        """Save each figure that is open and close it."""
        notice("figures", "there is no display: figures are saved instead of shown")
        for number in pyplot.get_fignums():
            _save(pyplot.figure(number), saved)
        pyplot.close("all")

    def pause(interval: float) -> None:
        """Do not wait: nobody sees the figure."""

    pyplot.show = functools.wraps(pyplot.show)(show)  # type: ignore
    pyplot.pause = functools.wraps(pyplot.pause)(pause)  # type: ignore


def _save(figure: Any, saved: set[Any]) -> None:
    number = len(saved) + 1
    while (path := Path(f"figure-{number}.png")).exists():
        number += 1
    saved.add(path.name)
    figure.savefig(path)
    print(f"saved {path}")


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "matplotlib": _patch_matplotlib,
    "matplotlib.pyplot": _patch_pyplot,
}
