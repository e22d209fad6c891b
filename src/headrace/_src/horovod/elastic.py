"""hvd.elastic: training that goes on when ranks die, leave or join. In: a state and a function that
trains. Out: the function's result, after as many epochs as it took.

The state of all ranks is committed in memory from time to time. When a rank is lost, the others
form the next epoch, return to the last commit, and go on. When a process joins, the others hear of
it at their next commit; all take the state of rank 0.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.devices.collectives import RankLostError
from headrace._src.graph.default import default_session, get_default_graph
from headrace._src.horovod.functions import broadcast_variables
from headrace._src.horovod.process import communicator, init, wait
from headrace._src.variables.collections import global_variables

__all__ = ["HostsUpdatedInterrupt", "State", "TensorFlowState", "run"]


@export("horovod.elastic.HostsUpdatedInterrupt")
class HostsUpdatedInterrupt(RuntimeError):
    """Processes wait to join: the ranks have committed, and form the next epoch now."""


@export("horovod.elastic.State")
class State:
    """Attributes that all ranks have in common, such as the number of the next batch.

    They must be what JSON can hold: numbers, strings, booleans, None, lists and dicts.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._known = sorted(kwargs)
        self._callbacks: list[Callable[[], Any]] = []
        self._commits = 0
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved: dict[str, Any] = copy.deepcopy(kwargs)

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], Any]]) -> None:
        """Call functions whenever the ranks have changed, such as one that changes a learning rate
        with the number of ranks.
        """
        self._callbacks += callbacks

    def on_reset(self) -> None:
        """Tell the state that the ranks have changed."""
        for callback in self._callbacks:
            callback()

    def commit(self) -> None:
        """Save the state, and raise HostsUpdatedInterrupt if processes wait to join."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt, on all ranks alike, if processes wait to join."""
        group = communicator()
        self._commits += 1
        waiting = np.array([group.waiting > 0], np.int32)
        (found,) = wait(group.all_reduce("hvd.elastic waiting", [waiting], "Max", False))
        if found[0]:
            raise HostsUpdatedInterrupt

    def save(self) -> None:
        """Remember the attributes."""
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._known}

    def restore(self) -> None:
        """Return to what was last saved."""
        for name, value in self._saved.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        """Take the attributes of rank 0."""
        values = {name: getattr(self, name) for name in self._known}
        try:
            text = json.dumps(values).encode()
        except TypeError as error:
            raise TypeError(
                f"the attributes of an elastic state must be what JSON can hold: {error}"
            ) from None
        data, group = np.frombuffer(text, np.uint8), communicator()
        length = wait(group.broadcast("hvd.elastic length", np.array(data.size), 0))
        found = wait(group.broadcast("hvd.elastic state", np.resize(data, int(length)), 0))
        for name, value in json.loads(found.tobytes()).items():
            setattr(self, name, value)
        self.save()


@export("horovod.elastic.TensorFlowState")
class TensorFlowState(State):
    """Variables that all ranks have in common, and attributes as a State has them.

    variables: all global ones by default. session: the one that they live in, the default session
    if there is none.
    """

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        self._variables = list(global_variables() if variables is None else variables)
        self._session = session
        graph = self._variables[0].graph if self._variables else get_default_graph()
        with graph.as_default():
            self._broadcast = broadcast_variables(self._variables, 0)
        self._values: list[Any] = []
        super().__init__(**kwargs)

    def _in_session(self) -> Any:
        found = self._session or default_session()
        if found is None:
            raise ValueError("TensorFlowState needs a session: pass one, or enter it")
        return found

    def save(self) -> None:
        """Remember variables and attributes."""
        self._values = self._in_session().run(self._variables)
        super().save()

    def restore(self) -> None:
        """Return to what was last saved."""
        for variable, value in zip(self._variables, self._values, strict=False):
            variable.load(value, self._in_session())
        super().restore()

    def sync(self) -> None:
        """Take the variables and attributes of rank 0."""
        self._in_session().run(self._broadcast)
        super().sync()


@export("horovod.elastic.run")
def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function `train(state, ...)`, so that it survives changes of the ranks: it is
    called again with the state that was last committed. It should go on from there.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        init()
        while True:
            try:
                state.sync()
                return func(state, *args, **kwargs)
            except RankLostError:
                state.restore()
            except HostsUpdatedInterrupt:
                pass
            communicator().next_epoch()
            state.on_reset()

    return wrapper
