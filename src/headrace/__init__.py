"""Headrace: machine learning on stateful dataflow graphs, with TensorFlow 1.15's interfaces.

import headrace as tf

x = tf.placeholder(tf.float32, [None])
with tf.Session() as session:
    print(session.run(x * 2 + 1, {x: [1, 2, 3]}))
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from headrace import api
from headrace.api import __all__ as __all__

if TYPE_CHECKING:
    from headrace.api import *  # noqa: F403

__version__ = "0.1.0"

# tf.compat.v1 is TensorFlow 1.15's own name for its interface: all of this module.
api.compat.v1 = sys.modules[__name__]  # type: ignore[attr-defined]


class _Package(ModuleType):
    """A public name stays what it is when a room of the same name is imported.

    `tf.gradients` is a function and `headrace.gradients` a room (as `train`, `data` or `layers` may
    be): the import system sets the room as an attribute of this package, which must not hide the
    public one. The room is still found by `from headrace.gradients import ...`.
    """

    def __setattr__(self, name: str, value: object) -> None:
        is_room = isinstance(value, ModuleType) and value.__name__ == f"headrace.{name}"
        if not (is_room and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
for _name in __all__:
    globals().pop(_name, None)  # rooms that were imported up to here

if not TYPE_CHECKING:  # who reads the code sees the names of `api`, and no others

    def __getattr__(name: str) -> object:
        try:
            value = getattr(api, name)
        except AttributeError:
            # With name and obj, Python adds "Did you mean: ...?".
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[__name__]) from None
        globals()[name] = value  # the next access doesn't come here
        return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
