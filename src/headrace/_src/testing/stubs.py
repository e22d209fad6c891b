"""tf.test.StubOutForTesting: replace attributes of modules and objects, and put them back."""

from __future__ import annotations

import inspect
from types import TracebackType
from typing import Any

from headrace._src.core.export import export

__all__ = ["StubOutForTesting"]


@export("test.StubOutForTesting")
class StubOutForTesting:
    """Replaced attributes, which UnsetAll, SmartUnsetAll, or the end of a `with` block put back.

    State: (object, attribute, original) of each replacement, in order.
    """

    def __init__(self) -> None:
        self._stubs: list[tuple[Any, str, Any]] = []
        self._smart_stubs: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> StubOutForTesting:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.CleanUp()

    def __del__(self) -> None:
        self.CleanUp()

    def CleanUp(self) -> None:
        """Put everything back."""
        self.SmartUnsetAll()
        self.UnsetAll()

    def SmartSet(self, obj: Any, attr_name: str, new_attr: Any) -> None:
        """Replace an attribute where it's defined: in the object, or in the class that it comes
        from. AttributeError if there is none.
        """
        if inspect.ismodule(obj) or (not inspect.isclass(obj) and attr_name in vars(obj)):
            owner, original = obj, getattr(obj, attr_name)
        else:
            kind = obj if inspect.isclass(obj) else type(obj)
            owners = [base for base in inspect.getmro(kind) if attr_name in vars(base)]
            if not owners:
                raise AttributeError(f"{kind.__name__!r} has no attribute {attr_name!r}")
            owner, original = owners[0], vars(owners[0])[attr_name]
        self._smart_stubs.append((owner, attr_name, original))
        setattr(owner, attr_name, new_attr)

    def SmartUnsetAll(self) -> None:
        """Put back what SmartSet replaced, the last first."""
        while self._smart_stubs:
            setattr(*self._smart_stubs.pop())

    def Set(self, parent: Any, child_name: str, new_child: Any) -> None:
        """Replace an attribute of an object; a static method of a class stays one."""
        original = getattr(parent, child_name)
        kept = vars(parent).get(child_name) if hasattr(parent, "__dict__") else None
        if isinstance(kept, staticmethod):
            original, new_child = kept, staticmethod(new_child)
        self._stubs.append((parent, child_name, original))
        setattr(parent, child_name, new_child)

    def UnsetAll(self) -> None:
        """Put back what Set replaced, the last first."""
        while self._stubs:
            setattr(*self._stubs.pop())
