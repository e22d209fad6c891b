"""Model averaging: each worker trains a model of its own, and now and then the models meet.

In: an optimizer, and variables made through a custom getter, which keeps a worker's variables on
the worker and a center variable for each on the parameter servers. Out: an operation that takes a
step of this worker and, every so many steps, moves its model.

ModelAverageOptimizer (as in SparkNet): all workers wait for each other, and go on with the mean of
their models. ElasticAverageOptimizer (EASGD): a worker and the center move toward each other,
without waiting for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.control.cond import cond
from headrace._src.ops.control.grouping import group, no_op
from headrace._src.ops.state.accumulator_ops import ConditionalAccumulator
from headrace._src.ops.state.queue_classes import FIFOQueue
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.train.saving.saveables import by_name
from headrace._src.train.saving.saver import Saver
from headrace._src.train.sessions.session_run_hook import SessionRunHook
from headrace._src.variables.collections import global_variables, trainable_variables
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.variable import Variable

__all__ = [
    "ElasticAverageCustomGetter",
    "ElasticAverageOptimizer",
    "ModelAverageCustomGetter",
    "ModelAverageOptimizer",
]

_CENTER, _LOCAL_CENTER = "global_center_variable", "local_center_variable"
_LOCAL = [GraphKeys.LOCAL_VARIABLES]


class _CustomGetter:
    """Makes trainable variables local, on the worker; subclasses add center variables."""

    def __init__(self, worker_device: str) -> None:
        self._worker_device = worker_device
        self._centers: dict[Any, Any] = {}

    def __call__(
        self, getter: Any, name: str, trainable: Any, collections: Any, *args: Any, **kwargs: Any
    ) -> Any:
        graph = get_default_graph()
        if not trainable:
            kwargs.update(trainable=trainable, collections=collections)
            if GraphKeys.LOCAL_VARIABLES not in (collections or ()):
                return getter(name, *args, **kwargs)
            with graph.device(self._worker_device):
                return getter(name, *args, **kwargs)
        with graph.device(self._worker_device):
            local = getter(name, *args, trainable=True, collections=_LOCAL, **kwargs)
        if kwargs.get("reuse") is not True and local not in self._centers:
            self._add_center(local, getter, name, args, kwargs)
        return local

    def _add_center(
        self, local: Any, getter: Any, name: str, args: Any, kwargs: dict[str, Any]
    ) -> None:
        raise NotImplementedError


class _AveragingOptimizer(Optimizer):
    """What both kinds share: the steps of a worker, and what happens after some of them."""

    _period: int

    def __init__(self, opt: Optimizer, getter: Any, use_locking: bool, name: str) -> None:
        super().__init__(use_locking, name)
        self._opt = opt
        self._centers = getter._centers
        with get_default_graph().device(getter._worker_device):
            self._local_step = get_variable(
                "local_step", initializer=0, trainable=False, collections=_LOCAL
            )
        self._opt._prepare()

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the result of the wrapped optimizer's compute_gradients."""
        return self._opt.compute_gradients(*args, **kwargs)

    def _center_of(self, variable: Any) -> Any:
        """Return the center variable of a variable; ValueError if it has none."""
        if variable not in self._centers:
            raise ValueError(
                f"{self._name}: '{variable.name}' has no center variable. Make it in a "
                "tf.variable_scope whose custom_getter is the optimizer's."
            )
        return self._centers[variable]

    def _after_step(self, pairs: list[tuple[Any, Any]], meet: Any, name: str | None) -> Operation:
        """Return an operation that takes a step, and calls `meet` for what follows some steps."""
        graph = get_default_graph()
        stepped = self._opt.apply_gradients(pairs)
        with graph.control_dependencies([stepped]):
            counted = b.assign_add(self._local_step, 1, name="local_step_update").op
        with graph.control_dependencies([counted]):
            due = b.equal(b.floormod(self._local_step, self._period), 0)
            taken = cond(due, meet, no_op)
        return taken if name is None else group(taken, name=name)


# -- Means of models -------------------------------------------------------------------------------


@export("contrib.opt.ModelAverageCustomGetter")
class ModelAverageCustomGetter(_CustomGetter):
    """A custom getter for `tf.variable_scope`, to be used with `tf.train.replica_device_setter`:
    trainable variables are local and on `worker_device`, and a variable on a parameter server
    holds their mean.
    """

    def _add_center(
        self, local: Any, getter: Any, name: str, args: Any, kwargs: dict[str, Any]
    ) -> None:
        self._centers[local] = Variable(
            local.initialized_value(),
            trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES],
            name=f"{_CENTER}/{name}",
        )


@export("contrib.opt.ModelAverageOptimizer")
class ModelAverageOptimizer(_AveragingOptimizer):
    """Trains a model per worker; every `interval_steps` steps, all workers go on with the mean of
    their models, which is also in the center variables.

    opt               the optimizer of a worker's model
    num_worker        the number of workers: each mean is of that many models
    is_chief          whether this worker assigns the means
    ma_custom_getter  the ModelAverageCustomGetter of the variables
    """

    def __init__(
        self,
        opt: Optimizer,
        num_worker: int,
        is_chief: bool,
        ma_custom_getter: ModelAverageCustomGetter,
        interval_steps: int = 100,
        use_locking: bool = True,
        name: str = "ModelAverageOptimizer",
    ) -> None:
        super().__init__(opt, ma_custom_getter, use_locking, name)
        self._num_worker = num_worker
        self._is_chief = is_chief
        self._period = interval_steps
        self._accumulators: dict[Any, ConditionalAccumulator] = {}
        self._chief_init_op: Any = None

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that takes a step of this worker and may average; `global_step`
        counts the averages.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required")
        trained = [v for g, v in pairs if g is not None]
        self._make_accumulators(trained, global_step)
        return self._after_step(pairs, lambda: self._average(trained, global_step), name)

    def _make_accumulators(self, trained: list[Any], global_step: Any) -> None:
        """Make an accumulator beside each center, outside of the branch that uses it: the chief
        initialises them without taking a step.
        """
        inits = []
        with name_scope(None, f"{self._name}/global"):
            for variable in trained:
                center = self._center_of(variable)
                with get_default_graph().device(center.device):
                    accumulator = ConditionalAccumulator(
                        variable.dtype.base_dtype,
                        shape=variable.get_shape(),
                        shared_name=f"{center.name}/var_accum",
                    )
                    inits.append(accumulator.set_global_step(global_step, name="SetGlobalStep"))
                self._accumulators[variable] = accumulator
            self._chief_init_op = group(*inits)

    def _average(self, trained: list[Any], global_step: Any) -> Operation:
        graph = get_default_graph()
        with graph.colocate_with(global_step.op):
            done = FIFOQueue(-1, [dtypes.bool], shapes=[[]], shared_name="sync_queue")
        centers = [self._centers[v] for v in trained]
        sent, means = [], []
        for variable, center in zip(trained, centers, strict=True):
            accumulator = self._accumulators[variable]
            with graph.device(variable.device):
                value = variable.read_value()
            with graph.device(center.device):
                sent.append(accumulator.apply_grad(value, local_step=global_step))
                with graph.control_dependencies(sent):
                    means.append(accumulator.take_grad(self._num_worker))
        synced = self._share_means(sent, means, centers, global_step, done)
        with graph.control_dependencies([synced]):
            return self._local_vars_update(trained)

    def _share_means(
        self, sent: list[Any], means: list[Any], centers: list[Any], global_step: Any, done: Any
    ) -> Any:
        """Return what this worker waits for: the chief assigns the means, others are told."""
        graph = get_default_graph()
        if not self._is_chief:
            with graph.control_dependencies(sent), graph.device(global_step.device):
                return done.dequeue()
        updates = []
        with graph.control_dependencies(sent):
            for mean, center in zip(means, centers, strict=True):
                with graph.device(center.device):
                    updates.append(b.assign(center, mean))
            with graph.device(global_step.device):
                updates.append(b.assign_add(global_step, 1))
        with graph.control_dependencies(updates), graph.device(global_step.device):
            return done.enqueue_many(b.fill([self._num_worker - 1], False))

    def _local_vars_update(self, var_list: list[Any]) -> Operation:
        """Return an operation that assigns the center variables to this worker's."""
        if not var_list:
            raise ValueError("The list of local_variables should not be empty")
        graph, updates = get_default_graph(), []
        for variable in var_list:
            center = self._center_of(variable)
            with graph.device(center.device):
                value = center.read_value()
            with graph.device(variable.device):
                updates.append(b.assign(variable, value))
        return group(*updates)

    def get_init_op(self) -> Operation:
        """Return an operation that lets this worker's model begin as the center variables are."""
        return self._local_vars_update(trainable_variables())

    def make_session_run_hook(self) -> SessionRunHook:
        """Return a hook that initialises this worker's model. (TensorFlow's makes the operations
        and does not run them, so that its workers begin with models of their own.)
        """
        return _InitHook(lambda: [self._chief_init_op] * self._is_chief + [self.get_init_op()])


# -- Elastic averages ------------------------------------------------------------------------------


@export("contrib.opt.ElasticAverageCustomGetter")
class ElasticAverageCustomGetter(_CustomGetter):
    """A custom getter for `tf.variable_scope`, to be used with `tf.train.replica_device_setter`:
    trainable variables are local and on `worker_device`; a variable on a parameter server is their
    center, and a further local one is what this worker last saw of it.
    """

    def __init__(self, worker_device: str) -> None:
        super().__init__(worker_device)
        self._local_centers: dict[Any, Any] = {}

    def _add_center(
        self, local: Any, getter: Any, name: str, args: Any, kwargs: dict[str, Any]
    ) -> None:
        center = getter(
            f"{_CENTER}/{name}",
            *args,
            trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES],
            **kwargs,
        )
        with get_default_graph().device(self._worker_device):
            seen = getter(
                f"{_LOCAL_CENTER}/{name}", *args, trainable=False, collections=_LOCAL, **kwargs
            )
        whole = kwargs.get("partitioner") is None
        for part, middle, last in (
            [(local, center, seen)] if whole else zip(local, center, seen, strict=True)
        ):
            self._centers[part], self._local_centers[part] = middle, last


@export("contrib.opt.ElasticAverageOptimizer")
class ElasticAverageOptimizer(_AveragingOptimizer):
    """Trains a model per worker; every `communication_period` steps, a worker's model and the
    center move toward each other. Workers do not wait for each other.

    opt                   the optimizer of a worker's model
    num_worker            the number of workers
    ea_custom_getter      the ElasticAverageCustomGetter of the variables
    moving_rate           by which share they move; 0.9 / communication_period / num_worker if None
    rho                   the weight of the distance to the center in the loss; moving_rate divided
                          by the learning rate if None
    synchronous           whether all workers wait for each other before they begin
    """

    BETA = 0.9

    def __init__(
        self,
        opt: Optimizer,
        num_worker: int,
        ea_custom_getter: ElasticAverageCustomGetter,
        communication_period: int = 10,
        moving_rate: float | None = None,
        rho: float | None = None,
        use_locking: bool = True,
        synchronous: bool = False,
        name: str = "ElasticAverageOptimizer",
    ) -> None:
        super().__init__(opt, ea_custom_getter, use_locking, name)
        self._num_worker = num_worker
        self._period = communication_period
        self._local_centers = ea_custom_getter._local_centers
        self._synchronous = synchronous
        if moving_rate is None:
            moving_rate = self.BETA / communication_period / num_worker
        self._moving_rate = moving_rate
        self._rho = moving_rate / _learning_rate(opt) if rho is None else rho

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Return the gradients of the loss and of `rho` times the distance to the center."""
        variables = var_list or trainable_variables()
        for variable in variables:
            self._center_of(variable)
        distances = [b.l2_loss(b.subtract(v, self._local_centers[v])) for v in variables]
        return self._opt.compute_gradients(
            loss + self._rho * b.add_n(distances),
            variables,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that takes a step of this worker and may move toward the center;
        `global_step` counts the moves of all workers.
        """
        pairs = list(grads_and_vars)
        graph = get_default_graph()
        before = set(global_variables())
        trained = [v for g, v in pairs if g is not None]
        step = self._after_step(pairs, lambda: self._move(trained, global_step), name)
        # The slots of the wrapped optimizer belong to this worker, as its model does.
        made = [v for v in global_variables() if v not in before]
        kept = graph.get_collection_ref(GraphKeys.GLOBAL_VARIABLES)
        kept[:] = [v for v in kept if v not in made]
        for variable in made:
            graph.add_to_collection(GraphKeys.LOCAL_VARIABLES, variable)
        return step

    def _move(self, trained: list[Any], global_step: Any) -> Operation:
        graph = get_default_graph()
        centers = [self._centers[v] for v in trained]
        seen = [self._local_centers[v] for v in trained]
        looked = [last.assign(center) for last, center in zip(seen, centers, strict=True)]
        updates = []
        with graph.control_dependencies(looked):
            differences = []
            for variable, last in zip(trained, seen, strict=True):
                with graph.device(variable.device):
                    differences.append(b.subtract(variable, last))
            for move, moved in ((b.assign_sub, trained), (b.assign_add, centers)):
                for variable, difference in zip(moved, differences, strict=True):
                    with graph.device(variable.device):
                        updates.append(move(variable, b.multiply(self._moving_rate, difference)))
            if global_step is not None:
                with graph.colocate_with(global_step.op):
                    updates.append(b.assign_add(global_step, 1))
        return group(*updates)

    def get_init_op(self, task_index: int) -> Operation:
        """Return an operation that lets this worker's model begin as the center is; if
        `synchronous`, it also waits for the other workers.
        """
        inits = []
        for variable in trainable_variables():
            center = self._center_of(variable)
            inits += [
                b.assign(variable, center),
                b.assign(self._local_centers[variable], center),
            ]
        if not inits:
            raise ValueError("There are no variables of the custom getter to initialise")
        init = group(*inits)
        return self._barrier(init, task_index) if self._synchronous else init

    def _barrier(self, init: Operation, task_index: int) -> Operation:
        """Return an operation that waits until all workers have run `init`: each of them has a
        queue, into which all others put a token.
        """
        graph = get_default_graph()
        with graph.device(next(iter(self._centers.values())).device):  # where all can find them
            queues = [
                FIFOQueue(
                    self._num_worker,
                    [dtypes.bool],
                    shapes=[[]],
                    shared_name=f"variable_init_sync_queue{i}",
                )
                for i in range(self._num_worker)
            ]
            with graph.control_dependencies([init]):
                told = [q.enqueue(False) for i, q in enumerate(queues) if i != task_index]
            return group(*told, queues[task_index].dequeue_many(self._num_worker - 1))

    def make_session_run_hook(self, is_chief: bool, task_index: int) -> SessionRunHook:
        """Return a hook that initialises this worker's model."""
        return _InitHook(lambda: [self.get_init_op(task_index)])

    def swapping_saver(
        self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any
    ) -> Saver:
        """Return a Saver of `var_list` (all trainable variables by default) that stores the center
        under the names of the model's variables. `kwargs` are passed to Saver.
        """
        if not self._centers:
            raise RuntimeError(
                "global_center_variable is empty, please make sure this is called after model "
                "created and ElasticAverageCustomGetter is used when declaring you model"
            )
        given = trainable_variables() if var_list is None else var_list
        named = dict(given) if isinstance(given, Mapping) else by_name(given)
        swapped = {
            key: [self._centers.get(part, part) for part in found]
            if isinstance(found, list)
            else self._centers.get(found, found)
            for key, found in named.items()
        }
        return Saver(swapped, name=name, **kwargs)


def _learning_rate(opt: Optimizer) -> Any:
    settings = getattr(opt, "_settings", {})
    for rate in (settings.get("learning_rate"), settings.get("lr"), getattr(opt, "_lr", None)):
        if rate is not None:
            return opt._call_if_callable(rate)
    raise ValueError(f"rho is needed: {opt.get_name()} has no learning rate")


class _InitHook(SessionRunHook):
    """Runs operations in each new session. make: a function that returns them."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def begin(self) -> None:
        self._inits = self._make()

    def after_create_session(self, session: Any, coord: Any) -> None:
        for init in self._inits:
            session.run(init)
