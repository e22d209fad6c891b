"""SaveSliceInfo: the position of a part within a partitioned variable, for checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._src.core import proto

__all__ = ["SaveSliceInfo"]


class SaveSliceInfo:
    """The name and shape of the whole, the offset and shape of the part."""

    def __init__(
        self,
        full_name: str | None = None,
        full_shape: Sequence[int] | None = None,
        var_offset: Sequence[int] | None = None,
        var_shape: Sequence[int] | None = None,
        save_slice_info_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        if save_slice_info_def is not None:
            found = save_slice_info_def
            self.full_name: str | None = with_scope(found.full_name, import_scope)
            self.full_shape: list[int] | None = list(found.full_shape)
            self.var_offset: list[int] | None = list(found.var_offset)
            self.var_shape: list[int] | None = list(found.var_shape)
        else:
            self.full_name = full_name
            self.full_shape = None if full_shape is None else list(full_shape)
            self.var_offset = None if var_offset is None else list(var_offset)
            self.var_shape = None if var_shape is None else list(var_shape)

    @property
    def spec(self) -> str:
        """Return the slice in checkpoint notation: "4 2 2,2:0,2", the whole's sizes, then
        offset,size.
        """
        if self.full_shape is None or self.var_offset is None or self.var_shape is None:
            raise ValueError("a slice needs full_shape, var_offset and var_shape")
        sizes = " ".join(map(str, self.full_shape))
        pairs = zip(self.var_offset, self.var_shape, strict=True)
        return f"{sizes} {':'.join(f'{offset},{size}' for offset, size in pairs)}"

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Return a SaveSliceInfoDef, or None if the whole lies outside `export_scope`."""
        name = self.full_name or ""
        if export_scope and not name.startswith(export_scope):
            return None
        return proto.SaveSliceInfoDef(
            full_name=without_scope(name, export_scope),
            full_shape=self.full_shape,
            var_offset=self.var_offset,
            var_shape=self.var_shape,
        )


def with_scope(name: str, scope: str | None) -> str:
    """Return `name` under `scope`, which may be None."""
    return f"{scope.rstrip('/')}/{name}" if scope else name


def without_scope(name: str, scope: str | None) -> str:
    """Return `name` without the leading `scope`, if it has one."""
    return name.removeprefix(f"{scope.rstrip('/')}/") if scope else name
