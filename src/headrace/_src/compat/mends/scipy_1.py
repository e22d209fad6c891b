"""Names that SciPy removed or moved: images (`scipy.misc.imread`), NumPy's functions, windows."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from headrace._src.compat.mends.lending import lend

__all__ = ["PATCHES", "make_misc"]

_GONE = "scipy's {} has gone or moved; it is supplied"


def _pillow(name: str = "Image") -> Any:
    try:
        return importlib.import_module(f"PIL.{name}")
    except ImportError:
        raise ImportError(
            "scipy.misc's functions for images have gone from SciPy. Headrace supplies them if "
            "Pillow is installed: pip install pillow"
        ) from None


# -- Images ----------------------------------------------------------------------------------------


def bytescale(data: Any, cmin: Any = None, cmax: Any = None, high: int = 255, low: int = 0) -> Any:
    """Scale an array to bytes: its least value to `low`, its greatest to `high`."""
    data = np.asarray(data)
    if data.dtype == np.uint8:
        return data
    cmin = data.min() if cmin is None else cmin
    cmax = data.max() if cmax is None else cmax
    scale = float(high - low) / (float(cmax - cmin) or 1.0)
    scaled = (data - cmin) * scale + low
    return (scaled.clip(low, high) + 0.5).astype(np.uint8)


def toimage(
    arr: Any,
    high: int = 255,
    low: int = 0,
    cmin: Any = None,
    cmax: Any = None,
    pal: Any = None,
    mode: str | None = None,
    channel_axis: int | None = None,
) -> Any:
    """Return an image of an array of rank 2, or of rank 3 with 3 or 4 channels."""
    image = _pillow()
    data = np.asarray(arr)
    if np.iscomplexobj(data):
        raise ValueError("Cannot convert a complex-valued array.")
    if data.ndim == 2:
        if mode == "F":
            return image.fromarray(data.astype(np.float32))
        result = image.fromarray(bytescale(data, cmin, cmax, high, low))
        if pal is not None:
            result.putpalette(np.asarray(pal, np.uint8).tobytes())
        return result.convert(mode) if mode not in (None, "L", "P") else result
    channels = [axis for axis in range(data.ndim) if data.shape[axis] in (3, 4)]
    if data.ndim != 3 or not channels:
        raise ValueError("'arr' does not have a suitable array shape for any mode.")
    if channel_axis is None:
        channel_axis = 2 if 2 in channels else channels[0]
    colours = np.moveaxis(bytescale(data, cmin, cmax, high, low), channel_axis, 2)
    return image.fromarray(np.ascontiguousarray(colours), mode if mode != "L" else None)


def fromimage(im: Any, flatten: bool = False, mode: str | None = None) -> np.ndarray:
    """Return the array of an image."""
    if mode is not None and mode != im.mode:
        im = im.convert(mode)
    elif im.mode == "P":
        im = im.convert("RGBA" if "transparency" in im.info else "RGB")
    elif im.mode == "1":
        im = im.convert("L")
    return np.array(im.convert("F") if flatten else im)


def imread(name: Any, flatten: bool = False, mode: str | None = None) -> np.ndarray:
    """Read an image from a file."""
    return fromimage(_pillow().open(name), flatten, mode)


def imsave(name: Any, arr: Any, format: str | None = None) -> None:
    """Write an array to a file as an image."""
    toimage(arr, channel_axis=2 if np.ndim(arr) == 3 else None).save(name, format)


def _filters(interp: str) -> Any:
    resampling = _pillow().Resampling
    kinds = {"nearest": resampling.NEAREST, "lanczos": resampling.LANCZOS}
    kinds |= {"bilinear": resampling.BILINEAR, "bicubic": resampling.BICUBIC}
    return {**kinds, "cubic": resampling.BICUBIC}[interp]


def imresize(arr: Any, size: Any, interp: str = "bilinear", mode: str | None = None) -> np.ndarray:
    """Resize an image: to a percentage (int), by a factor (float), or to (height, width)."""
    image = toimage(arr, mode=mode)
    if isinstance(size, int | np.integer):
        wanted = tuple(int(n * size / 100.0) for n in image.size)
    elif isinstance(size, float | np.floating):
        wanted = tuple(int(n * size) for n in image.size)
    else:
        wanted = (int(size[1]), int(size[0]))
    return fromimage(image.resize(wanted, resample=_filters(interp)))


def imrotate(arr: Any, angle: float, interp: str = "bilinear") -> np.ndarray:
    """Rotate an image counter-clockwise, in degrees."""
    return fromimage(toimage(arr).rotate(angle, resample=_filters(interp)))


def imshow(arr: Any) -> None:
    """Show an image."""
    toimage(arr).show()


# -- Modules ---------------------------------------------------------------------------------------


def _from(module: str, *names: str) -> dict[str, Callable[[], Any]]:
    def find(name: str) -> Any:
        return getattr(importlib.import_module(module), name)

    return {name: functools.partial(find, name) for name in names}


def _patch_misc(misc: ModuleType) -> None:
    own = (bytescale, fromimage, imread, imresize, imrotate, imsave, imshow, toimage)
    names: dict[str, Callable[[], Any]] = {f.__name__: lambda f=f: f for f in own}
    names |= _from("scipy.special", "comb", "factorial", "factorial2", "factorialk", "logsumexp")
    names |= _from("scipy.datasets", "ascent", "face")
    lend(misc, names, f"scipy.misc: {_GONE}")


def make_misc() -> ModuleType:
    """Make scipy.misc, where SciPy has none."""
    module = ModuleType("scipy.misc")
    module.__path__ = []
    _patch_misc(module)
    return module


def _patch_scipy(scipy: ModuleType) -> None:
    """SciPy had NumPy's functions too."""
    public = [name for name in dir(np) if not name.startswith("_") and name not in dir(scipy)]
    names: dict[str, Callable[[], Any]] = {name: lambda n=name: getattr(np, n) for name in public}
    lend(scipy, {n: make for n, make in names.items() if n not in ("test",)}, _GONE)


def _patch_signal(signal: ModuleType) -> None:
    windows = "hann hamming blackman bartlett gaussian kaiser boxcar triang parzen"
    names = _from("scipy.signal.windows", *windows.split())
    names["hanning"] = names["hann"]
    lend(signal, names, f"scipy.signal: {_GONE}")


def _patch_integrate(integrate: ModuleType) -> None:
    renamed = {"trapz": "trapezoid", "simps": "simpson", "cumtrapz": "cumulative_trapezoid"}
    names = {old: lambda new=new: getattr(integrate, new) for old, new in renamed.items()}
    lend(integrate, names, f"scipy.integrate: {_GONE}")


def _make_package(module: ModuleType) -> None:
    module.__path__ = []  # whose modules are among those that moved


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "scipy": _patch_scipy,
    "scipy.integrate": _patch_integrate,
    "scipy.misc": _patch_misc,
    "scipy.signal": _patch_signal,
    "scipy.sparse.linalg.eigen": _make_package,
}
