"""Report names that a checkpoint lacks. In: the requested and the stored names. Out: an error that
lists the missing names, the unused ones, and the unused names nearest to the missing ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from headrace._src.checkpoint.contents import OpenCheckpoint
from headrace._src.core.errors import NotFoundError

__all__ = ["nearest", "require", "story"]

_SHOWN = 10


def require(checkpoint: OpenCheckpoint, names: Iterable[str]) -> None:
    """Check that all of `names` are in a checkpoint; if not, raise a NotFoundError that lists them
    all.
    """
    asked = list(dict.fromkeys(names))
    missing = [name for name in asked if name not in checkpoint.stored]
    if missing:
        hint = story(missing, set(checkpoint.stored) - set(asked))
        raise NotFoundError(None, None, checkpoint.missing(missing[0]), hint=hint)


def story(missing: Sequence[str], unused: Collection[str]) -> str:
    """Return the message about names that are missing in a checkpoint that has other, unused
    names.
    """
    unused = sorted(unused)
    lines = [f"missing in the checkpoint: {_some(missing)}"]
    lines.append(f"in the checkpoint, but not asked for: {_some(unused) or 'nothing'}")
    for name in missing[:_SHOWN]:
        if near := nearest(name, unused):
            lines.append(f"nearest to {name}: {', '.join(near)}")
    return "\n  ".join(lines)


def nearest(name: str, others: Collection[str]) -> list[str]:
    """Return the most similar names; those that differ only by a leading scope come first."""
    moved = [o for o in others if o.endswith(f"/{name}") or name.endswith(f"/{o}")]
    close = difflib.get_close_matches(name, others, n=3)
    return list(dict.fromkeys([*moved, *close]))[:3]


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
