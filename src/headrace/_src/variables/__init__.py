"""Variables: the user's view of state, and how it's named, shared, initialised and partitioned."""

from headrace._src.variables import (
    collections,
    initializers,
    lookup,
    partition,
    ref_variable,
    resource_variable,
    scope,
    template,
    updates,
)
