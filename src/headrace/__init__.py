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
from headrace.api import _homes
from headrace.core.export import on_first_use
from headrace.core.text import (
    COMPILER_VERSION,
    CXX11_ABI_FLAG,
    GIT_VERSION,
    MONOLITHIC_BUILD,
    VERSION,
)
from headrace.graph import definition
from headrace.lowering import generated
from headrace.ops import builder

if TYPE_CHECKING:
    from headrace.api import *  # noqa: F403

# Those of TensorFlow, whose interfaces programs choose by them; ours is HEADRACE_VERSION.
__version__ = VERSION
__git_version__ = GIT_VERSION
__compiler_version__ = COMPILER_VERSION
__cxx11_abi_flag__ = CXX11_ABI_FLAG
__monolithic_build__ = MONOLITHIC_BUILD

# Ops are here from the start, by name; the modules that define them are imported when one is used.
definition.expect(_homes.OPS)
builder.expect(_homes.FUNCTIONS)
generated.expect("headrace.compile.singles")


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
    globals().pop(_name, None)  # rooms that were imported on the way here

if not TYPE_CHECKING:
    __getattr__, __dir__ = on_first_use(__name__, api._HOMES)
