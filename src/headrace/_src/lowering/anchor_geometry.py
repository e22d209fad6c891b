"""What the compiler's passes ask of an anchor, whatever its kind. The classes of geometries answer
for their kernels, so that no pass needs a list of kinds.
"""

from __future__ import annotations

__all__ = ["AnchorGeometry"]


class AnchorGeometry:
    """The description of an anchor.

    fuses: element-wise nodes that follow can be computed on its result before that is stored
    result: the output that these start from
    fills_parts: its result can be stored as a part of a larger array
    leads: images are worth converting to the layout that it prefers
    makes_image: of an anchor of images, whether its result is one
    filters: the inputs that are filters
    """

    __slots__ = ()

    fuses = False
    result = 0
    fills_parts = False
    leads = False
    filters: tuple[int, ...] = ()

    @property
    def makes_image(self) -> bool:
        return True

    @property
    def limits(self) -> tuple[tuple[int, int], ...]:
        """The inputs that are indices, with their upper bounds."""
        return ()

    def blocked_inputs(self, block: int) -> tuple[int, ...] | None:
        """Return the inputs that must be in blocks of so many channels for its results to be; None
        if these never are.
        """
        return None
