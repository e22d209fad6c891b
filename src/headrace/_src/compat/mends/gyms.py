"""Gym as it was before 0.26. In: gym 0.26, or gymnasium. Out: environments whose `reset` returns an
observation and whose `step` returns four values.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headrace._src.compat.notices import notice

__all__ = ["PATCHES", "make_gym"]


class OldEnvironment:
    """An environment with the old interface. State: the seed of the next reset, whether pictures
    are wanted, and the environment itself.
    """

    def __init__(self, made: Callable[..., Any]) -> None:
        self._make = made
        self._env = made()
        self._seed: int | None = None
        self._draws = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._env, name)

    @property
    def env(self) -> Any:
        """The environment inside."""
        return self._env

    @property
    def unwrapped(self) -> Any:
        """The environment inside, without its wrappers."""
        return self._env.unwrapped

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seed the next reset."""
        self._seed = seed
        return [seed]

    def reset(self, **kwargs: Any) -> Any:
        """Start an episode and return the first observation."""
        seed, self._seed = self._seed, None
        result = self._env.reset(**({"seed": seed} if seed is not None else {}), **kwargs)
        return result[0] if isinstance(result, tuple) and len(result) == 2 else result

    def step(self, action: Any) -> tuple[Any, ...]:
        """Return the observation, the reward, whether the episode is over, and a dict."""
        result = self._env.step(action)
        if len(result) != 5:
            return result
        observation, reward, ended, cut, about = result
        if cut and not ended:
            about = {**about, "TimeLimit.truncated": True}
        return observation, reward, bool(ended or cut), about

    def render(self, mode: str = "human", **kwargs: Any) -> Any:
        """Return a picture if the mode is "rgb_array"; nobody sees any other."""
        if mode != "rgb_array":
            return None
        if not self._draws:
            self._env.close()
            self._env, self._draws = self._make(render_mode="rgb_array"), True
            self._env.reset()
        return self._env.render()

    def __enter__(self) -> OldEnvironment:
        return self

    def __exit__(self, *about: Any) -> None:
        self._env.close()


def _patch_gym(gym: ModuleType) -> None:
    version = re.findall(r"\d+", getattr(gym, "__version__", "0"))
    if hasattr(gym, "__version__") and [int(n) for n in version[:2]] < [0, 26]:
        return  # the old interface is there
    make = gym.make

    def make_old(id: Any, **kwargs: Any) -> OldEnvironment:
        notice("gym", "environments have the interface of gym before 0.26")

        def made(**more: Any) -> Any:
            try:
                return make(id, **kwargs, **more)
            except Exception:
                newer = _newest(gym, id)
                if newer is None:
                    raise
                notice("gym versions", f"{id} has gone; {newer} is used")
                return make(newer, **kwargs, **more)

        return OldEnvironment(made)

    gym.make = functools.wraps(make)(make_old)  # type: ignore


def _newest(gym: ModuleType, name: Any) -> str | None:
    """Return the newest version of an environment of which the program asks for an old one."""
    stem, _, version = str(name).rpartition("-v")
    registry = getattr(gym, "envs", gym).registry
    found = [key for key in registry if re.fullmatch(rf"{re.escape(stem)}-v\d+", key)]
    newest = max(found, key=lambda key: int(key.rpartition("-v")[2]), default=None)
    return newest if newest and version and newest != name else None


def make_gym() -> ModuleType:
    """Make the module gym from gymnasium."""
    try:
        new = importlib.import_module("gymnasium")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "No module named 'gym': install its successor, pip install gymnasium", name="gym"
        ) from None
    module = ModuleType("gym")
    vars(module).update({name: getattr(new, name) for name in dir(new) if name[:2] != "__"})
    module.__path__ = list(new.__path__)
    vars(module)["__getattr__"] = functools.partial(getattr, new)
    _patch_gym(module)
    return module


PATCHES: dict[str, Callable[[ModuleType], None]] = {"gym": _patch_gym}
