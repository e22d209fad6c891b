"""Scaffold: the pieces of a graph that training needs besides the model. In: the pieces that the
user provides. Out: all of them, with defaults made by `finalize`, which also finalizes the graph.

A default is looked up in a collection of the graph; if it isn't there, it is made and added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core import log
from headrace._src.core.dtypes import string
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant, name_scope
from headrace._src.ops.control.grouping import group, no_op
from headrace._src.ops.io.summary_functions import merge_all
from headrace._src.ops.state.table_classes import tables_initializer
from headrace._src.train.saving.saver import Saver
from headrace._src.variables.collections import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)

__all__ = ["Scaffold", "saver_or_default"]

_PIECES = (
    *("init_op", "init_feed_dict", "ready_op", "ready_for_local_init_op"),
    *("local_init_op", "summary_op", "saver"),
)


@export("train.Scaffold")
class Scaffold:
    """The operations and objects that make a model trainable; each has a default.

    init_op                  initialises the global variables if there is no checkpoint
    init_feed_dict           the feeds of init_op
    init_fn                  called as `init_fn(scaffold, session)` after init_op
    ready_op                 returns the names of uninitialised variables
    ready_for_local_init_op  the same, for the global variables
    local_init_op            run in each new session: initialises local variables and tables
    summary_op               all summaries, as one string
    saver                    saves and restores the global variables
    copy_from_scaffold       a scaffold that provides the parts that are None here
    """

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Any = None,
        init_fn: Callable[..., Any] | None = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Saver | None = None,
        copy_from_scaffold: Scaffold | None = None,
    ) -> None:
        self._init_op = init_op
        self._init_feed_dict = init_feed_dict
        self._user_init_fn = init_fn
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._local_init_op = local_init_op
        self._summary_op = summary_op
        self._saver = saver
        if copy_from_scaffold is not None:
            self._fill_from(copy_from_scaffold)

    def _fill_from(self, other: Scaffold) -> None:
        if not isinstance(other, Scaffold):
            raise TypeError("copy_from_scaffold is not a Scaffold instance.")
        for name in (*_PIECES, "user_init_fn"):
            if getattr(self, f"_{name}") is None:
                setattr(self, f"_{name}", getattr(other, f"_{name}"))

    @property
    def init_op(self) -> Any:
        return self._init_op

    @property
    def init_feed_dict(self) -> Any:
        return self._init_feed_dict

    @property
    def init_fn(self) -> Callable[[Any], Any] | None:
        """Return a function of the session; the user's function also gets the scaffold."""
        given = self._user_init_fn
        return None if given is None else lambda session: given(self, session)

    @property
    def ready_op(self) -> Any:
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        return self._ready_for_local_init_op

    @property
    def local_init_op(self) -> Any:
        return self._local_init_op

    @property
    def summary_op(self) -> Any:
        return self._summary_op

    @property
    def saver(self) -> Saver | None:
        return self._saver

    def finalize(self) -> Scaffold:
        """Make the missing parts, and finalize the graph; a second call does nothing."""
        defaults: list[tuple[str, str, Callable[[], Any]]] = [
            ("init_op", GraphKeys.INIT_OP, _default_init_op),
            ("ready_op", GraphKeys.READY_OP, _default_ready_op),
            (
                "ready_for_local_init_op",
                GraphKeys.READY_FOR_LOCAL_INIT_OP,
                _default_ready_for_local_init_op,
            ),
            ("local_init_op", GraphKeys.LOCAL_INIT_OP, Scaffold.default_local_init_op),
            ("summary_op", GraphKeys.SUMMARY_OP, merge_all),
        ]
        for name, key, make in defaults:
            if getattr(self, f"_{name}") is None:
                setattr(self, f"_{name}", Scaffold.get_or_default(name, key, make))
        if self._saver is None:
            self._saver = saver_or_default()
        self._saver.build()
        get_default_graph().finalize()
        log.info("Graph was finalized.")
        return self

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """Return the only item of a collection; if there's none, make it and add it (unless it is
        None). RuntimeError if there are several: the constructor's argument `arg_name` should
        choose.
        """
        graph = get_default_graph()
        found = graph.get_collection(collection_key)
        if len(found) > 1:
            raise RuntimeError(
                f'More than one item in the collection "{collection_key}". Please indicate which '
                "one to use by passing it to the tf.Scaffold constructor as:  "
                f"tf.Scaffold({arg_name}=item to use)"
            )
        if found:
            return found[0]
        made = default_constructor()
        if made is not None:
            graph.add_to_collection(collection_key, made)
        return made

    @staticmethod
    def default_local_init_op() -> Operation:
        """Return an operation that initialises local variables and fills tables."""
        return group(local_variables_initializer(), tables_initializer(), no_op(name="init"))


def _default_init_op() -> Operation:
    # The second NoOp stands for TensorFlow's shared-resource initializer, so that names agree.
    return group(global_variables_initializer(), no_op(name="init"))


def _default_ready_op() -> Tensor:
    return b.concat([report_uninitialized_variables(), _uninitialized_resources()], 0)


def _default_ready_for_local_init_op() -> Tensor:
    missing = report_uninitialized_variables(global_variables())
    return b.concat([missing, _uninitialized_resources()], 0)


def _uninitialized_resources() -> Tensor:
    """Return the names of uninitialised resources: none, since ours are made on first use."""
    with name_scope("report_uninitialized_resources"), get_default_graph().device("/cpu:0"):
        return constant([], string)


def saver_or_default() -> Saver:
    """Return the saver in the collection SAVERS; make it if there is none. RuntimeError if there
    are several.
    """
    graph = get_default_graph()
    savers = graph.get_collection(GraphKeys.SAVERS)
    if len(savers) > 1:
        raise RuntimeError(
            f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one to "
            "use by passing it to the constructor."
        )
    if savers:
        return savers[0]
    saver = Saver(sharded=True, allow_empty=True)
    graph.add_to_collection(GraphKeys.SAVERS, saver)
    return saver
