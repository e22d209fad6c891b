"""Modules and names outside TensorFlow that have gone or changed since the program was written.

`imports`      modules that have gone, and modules that are patched after their import
`lending`      names that a module lacks, found when they are used
`moved`        the table of modules that have gone
`numpy_1`, `standard_library`, `scipy_1`, `libraries`, `figures`, `gyms`   patches, a library each
`six`          the module of that name, where it isn't installed
`downloads`    what a program is told when a download fails

Invariant: what is there is never replaced by something older; installed modules come first.
"""

from headrace._src.compat.mends.imports import install

__all__ = ["install"]
