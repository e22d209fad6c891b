"""Training as in tf.contrib.slim.learning and tf.contrib.training. In: a loss and an optimizer.
Out: the loss as a tensor whose evaluation trains; and a loop that evaluates it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace._src.core import log, proto
from headrace._src.core.errors import AbortedError
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant, name_scope
from headrace._src.ops.io.summary_functions import histogram, scalar
from headrace._src.session.chrome_timeline import Timeline
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.train.sessions.global_step import get_or_create_global_step
from headrace._src.train.sessions.supervisor import Supervisor
from headrace._src.variables.collections import trainable_variables
from headrace._src.variables.variable import Variable

__all__ = ["create_train_op", "train", "train_step"]

Pairs = list[tuple[Any, Any]]

_DEFAULT: Any = 0  # as in TensorFlow: the graph's global step, or the Supervisor's default


# -- Gradients -------------------------------------------------------------------------------------


@export("contrib.training.clip_gradient_norms", "contrib.slim.learning.clip_gradient_norms")
def clip_gradient_norms(gradients_to_variables: Iterable[tuple[Any, Any]], max_norm: Any) -> Pairs:
    """Return the gradients, each with a norm of at most `max_norm`."""
    return [
        (None if g is None else _with_values(g, b.clip_by_norm(_values(g), max_norm)), v)
        for g, v in gradients_to_variables
    ]


@export("contrib.training.clip_gradient_norms_fn")
def clip_gradient_norms_fn(max_norm: Any) -> Callable[[Any], Pairs]:
    """Return a function that clips gradients: see clip_gradient_norms."""
    return lambda pairs: clip_gradient_norms(pairs, max_norm)


@export("contrib.training.multiply_gradients", "contrib.slim.learning.multiply_gradients")
def multiply_gradients(
    grads_and_vars: list[tuple[Any, Any]], gradient_multipliers: Mapping[Any, Any]
) -> Pairs:
    """Return the gradients times factors, by variables or their names."""
    if not isinstance(grads_and_vars, list):
        raise ValueError("`grads_and_vars` must be a list.")
    if not isinstance(gradient_multipliers, Mapping) or not gradient_multipliers:
        raise ValueError("`gradient_multipliers` is empty or not a dict.")
    found = []
    for gradient, variable in grads_and_vars:
        factor = gradient_multipliers.get(variable, gradient_multipliers.get(variable.op.name))
        if factor is not None:
            if gradient is None:
                raise ValueError("Requested multiple of `None` gradient.")
            values = _values(gradient)
            if not isinstance(factor, Tensor):
                factor = constant(factor, dtype=values.dtype.base_dtype)
            gradient = _with_values(gradient, values * factor)
        found.append((gradient, variable))
    return found


@export("contrib.training.add_gradients_summaries", "contrib.slim.learning.add_gradients_summaries")
def add_gradients_summaries(grads_and_vars: Iterable[tuple[Any, Any]]) -> list[Tensor]:
    """Return summaries of the gradients: their values, and their norms."""
    summaries = []
    for gradient, variable in grads_and_vars:
        if gradient is None:
            log.info("Var %s has no gradient", variable.op.name)
            continue
        values = _values(gradient)
        summaries.append(histogram(f"{variable.op.name}_gradient", values))
        summaries.append(scalar(f"{variable.op.name}_gradient_norm", b.global_norm([values])))
    return summaries


def _values(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, IndexedSlices) else gradient


def _with_values(gradient: Any, values: Any) -> Any:
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return values


# -- The training op -------------------------------------------------------------------------------


@export("contrib.training.create_train_op")
def create_train_op(
    total_loss: Tensor,
    optimizer: Optimizer,
    global_step: Any = _DEFAULT,
    update_ops: Iterable[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    transform_grads_fn: Callable[[Pairs], Pairs] | None = None,
    summarize_gradients: bool = False,
    gate_gradients: int = Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    check_numerics: bool = True,
) -> Tensor:
    """Return the loss as a tensor; evaluating it runs a training step.

    global_step         the step counter; by default the graph's, which is made if missing; None:
                        don't count
    update_ops          operations to run before the loss; the graph's UPDATE_OPS by default
    variables_to_train  all trainable variables by default
    transform_grads_fn  a function from (gradient, variable) pairs to such pairs
    check_numerics      whether an infinite or NaN loss is an error
    """
    graph = get_default_graph()
    step = get_or_create_global_step() if global_step is _DEFAULT else global_step
    registered = list(dict.fromkeys(graph.get_collection(GraphKeys.UPDATE_OPS)))
    before = registered if update_ops is None else list(dict.fromkeys(update_ops))
    if not set(registered) <= set(before):
        log.warning(
            "update_ops in create_train_op does not contain all the update_ops in "
            "GraphKeys.UPDATE_OPS"
        )
    if before:
        with control_dependencies(before):
            barrier = b.no_op(name="update_barrier")
        total_loss = b.with_dependencies([barrier], total_loss)
    trained = trainable_variables() if variables_to_train is None else variables_to_train
    for variable in trained:
        if not isinstance(variable, Variable):
            raise ValueError(f"variables_to_train must hold variables, but has {variable}.")
    pairs = optimizer.compute_gradients(
        total_loss,
        trained,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    if transform_grads_fn is not None:
        pairs = transform_grads_fn(pairs)
    if summarize_gradients:
        with name_scope("summarize_grads"):
            add_gradients_summaries(pairs)
    applied = optimizer.apply_gradients(pairs, global_step=step)
    with name_scope("train_op"):
        if check_numerics:
            total_loss = b.check_numerics(total_loss, "LossTensor is inf or nan")
        train_op = b.with_dependencies([applied], total_loss)
    graph.add_to_collection(GraphKeys.TRAIN_OP, train_op)
    return train_op


@export("contrib.slim.learning.create_train_op")
def create_slim_train_op(
    total_loss: Tensor,
    optimizer: Optimizer,
    global_step: Any = _DEFAULT,
    update_ops: Iterable[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: int = Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    check_numerics: bool = True,
) -> Tensor:
    """As contrib.training's create_train_op, but multiply gradients by `gradient_multipliers`,
    given by variables or their names, and clip them to `clip_gradient_norm`.
    """

    def transform(pairs: Pairs) -> Pairs:
        if gradient_multipliers:
            with name_scope("multiply_grads"):
                pairs = multiply_gradients(pairs, gradient_multipliers)
        if clip_gradient_norm > 0:
            with name_scope("clip_grads"):
                pairs = clip_gradient_norms(pairs, clip_gradient_norm)
        return pairs

    return create_train_op(
        total_loss,
        optimizer,
        global_step=global_step,
        update_ops=update_ops,
        variables_to_train=variables_to_train,
        transform_grads_fn=transform,
        summarize_gradients=summarize_gradients,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
        check_numerics=check_numerics,
    )


# -- The loop --------------------------------------------------------------------------------------


@export("contrib.slim.learning.train_step")
def train_step(
    sess: Any, train_op: Any, global_step: Any, train_step_kwargs: Mapping[str, Any]
) -> tuple[Any, bool]:
    """Run a step; return the loss and whether to stop.

    train_step_kwargs: optional tensors `should_stop`, `should_log` and `should_trace`, and
    `logdir`, where traces are written.
    """
    start = time.time()
    options = metadata = None
    if "should_trace" in train_step_kwargs:
        if "logdir" not in train_step_kwargs:
            raise ValueError(
                "logdir must be present in train_step_kwargs when should_trace is present"
            )
        if sess.run(train_step_kwargs["should_trace"]):
            options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE)
            metadata = proto.RunMetadata()
    loss, step = sess.run([train_op, global_step], options=options, run_metadata=metadata)
    elapsed = time.time() - start
    if metadata is not None:
        path = os.path.join(train_step_kwargs["logdir"], f"tf_trace-{step:d}.json")
        log.info("Writing trace to %s", path)
        trace = Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True)
        with open(path, "w") as file:
            file.write(trace)
    if "should_log" in train_step_kwargs and sess.run(train_step_kwargs["should_log"]):
        log.info("global step %d: loss = %.4f (%.3f sec/step)", step, loss, elapsed)
    should_stop = False
    if "should_stop" in train_step_kwargs:
        should_stop = bool(sess.run(train_step_kwargs["should_stop"]))
    return loss, should_stop


@export("contrib.slim.learning.train")
def train(
    train_op: Any,
    logdir: str | None,
    train_step_fn: Callable[..., tuple[Any, bool]] = train_step,
    train_step_kwargs: Any = _DEFAULT,
    log_every_n_steps: int | None = 1,
    graph: Any = None,
    master: str | bytes = "",
    is_chief: bool = True,
    global_step: Any = None,
    number_of_steps: int | None = None,
    init_op: Any = _DEFAULT,
    init_feed_dict: Any = None,
    local_init_op: Any = _DEFAULT,
    init_fn: Callable[[Any], Any] | None = None,
    ready_op: Any = _DEFAULT,
    summary_op: Any = _DEFAULT,
    save_summaries_secs: float = 600,
    summary_writer: Any = _DEFAULT,
    startup_delay_steps: int = 0,
    saver: Any = None,
    save_interval_secs: float = 600,
    sync_optimizer: Any = None,
    session_config: Any = None,
    session_wrapper: Callable[[Any], Any] | None = None,
    trace_every_n_steps: int | None = None,
    ignore_live_threads: bool = False,
) -> Any:
    """Train with a Supervisor until train_step_fn asks to stop; return the last loss.

    train_op             the result of create_train_op
    logdir               where checkpoints and summaries go; None: nowhere
    train_step_fn        as train_step; it gets train_step_kwargs, tensors that say when to stop
                         (after number_of_steps), to log and to trace by default
    startup_delay_steps  the chief's step that other workers wait for before they start
    session_wrapper      a function of the session that returns the one to use
    The rest is for the Supervisor.
    """
    if train_op is None:
        raise ValueError("train_op cannot be None.")
    if not isinstance(train_op, Tensor | Operation):
        raise ValueError(f"train_op must be a Tensor or an Operation, not {train_op!r}.")
    if logdir is None:
        if summary_op is not _DEFAULT and summary_op is not None:
            raise ValueError("Cannot provide summary_op because logdir=None")
        if saver is not None:
            raise ValueError("Cannot provide saver because logdir=None")
        if trace_every_n_steps is not None:
            raise ValueError("Cannot provide trace_every_n_steps because logdir=None")
        summary_op = None
    if sync_optimizer is not None:
        raise ValueError("sync_optimizer isn't supported: there is one replica.")
    if is_chief and startup_delay_steps > 0:
        raise ValueError("Cannot set startup_delay_steps > 0 for the chief.")
    if number_of_steps is not None and number_of_steps <= 0:
        raise ValueError("`number_of_steps` must be either None or a positive number.")
    graph = graph or get_default_graph()
    with graph.as_default():
        step = get_or_create_global_step() if global_step is None else global_step
        kwargs = train_step_kwargs
        if kwargs is _DEFAULT:
            kwargs = _step_tensors(
                step, number_of_steps, log_every_n_steps, trace_every_n_steps, logdir
            )
    supervisor = Supervisor(
        graph=graph,
        is_chief=is_chief,
        logdir=logdir,
        init_op=init_op,
        init_feed_dict=init_feed_dict,
        local_init_op=local_init_op,
        ready_op=ready_op,
        summary_op=summary_op,
        summary_writer=summary_writer,
        global_step=step,
        saver=_DEFAULT if saver is None else saver,
        save_summaries_secs=save_summaries_secs,
        save_model_secs=save_interval_secs,
        init_fn=init_fn,
    )
    loss, again = None, True
    while again:
        again = False
        try:
            with supervisor.managed_session(
                master,
                config=session_config,
                start_standard_services=False,
                close_summary_writer=False,
            ) as session:
                log.info("Starting Session.")
                if session_wrapper is not None:
                    session = session_wrapper(session)
                if is_chief:
                    if logdir:
                        supervisor.start_standard_services(session)
                elif startup_delay_steps > 0:
                    _wait_for_step(session, step, min(startup_delay_steps, number_of_steps or 1))
                threads = supervisor.start_queue_runners(session)
                log.info("Starting Queues.")
                with supervisor.stop_on_exception():
                    while not supervisor.should_stop():
                        loss, should_stop = train_step_fn(session, train_op, step, kwargs)
                        if should_stop:
                            log.info("Stopping Training.")
                            supervisor.request_stop()
                            break
                try:  # a save that the services have begun must not finish after the last one
                    supervisor.stop(
                        threads, close_summary_writer=False, ignore_live_threads=ignore_live_threads
                    )
                finally:
                    if logdir and is_chief:
                        log.info("Finished training! Saving model to disk.")
                        supervisor.saver.save(
                            session, supervisor.save_path, global_step=supervisor.global_step
                        )
        except AbortedError:
            log.info("Retrying training!")
            again = True
        finally:
            if supervisor.summary_writer is not None and not again:
                supervisor.summary_writer.close()
    return loss


def _step_tensors(
    step: Any, last: int | None, log_every: int | None, trace_every: int | None, logdir: str | None
) -> dict[str, Any]:
    """Return the tensors that train_step evaluates at each step."""
    found: dict[str, Any] = {}
    with name_scope("train_step"):
        found["should_stop"] = constant(False) if last is None else b.greater_equal(step, last)
        if log_every and log_every > 0:
            found["should_log"] = b.equal(b.floormod(step, log_every), 0)
        if trace_every is not None:
            found["should_trace"] = b.equal(b.floormod(step, trace_every), 0)
            found["logdir"] = logdir
    return found


def _wait_for_step(session: Any, step: Any, wanted: int) -> None:
    while session.run(step) < wanted:
        log.info("Waiting for step %d before starting training.", wanted)
        time.sleep(1)
