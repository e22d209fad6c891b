"""Optimizers outside the graph, such as SciPy's L-BFGS-B. In: a loss, variables, constraints
and bounds. Out: `minimize`, which runs as many session steps as the algorithm needs and writes the
variables once, at the end.

To the algorithm, all variables are one vector. Each evaluation feeds pieces of it in place of
variables that are references; resource variables are written, and restored if the algorithm fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.gradients.gradients import gradients
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import get_default_session
from headrace._src.ops.array.constants_and_placeholders import placeholder
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.collections import trainable_variables
from headrace._src.variables.resource_variable import ResourceVariable

__all__ = ["ExternalOptimizerInterface", "ScipyOptimizerInterface"]

Function = Callable[[np.ndarray], Any]
Bounds = list[tuple[float, float]]


def _nothing(*_: Any) -> None:
    """The default callback, which does nothing."""


@export("contrib.opt.ExternalOptimizerInterface")
class ExternalOptimizerInterface:
    """Minimizes a loss with an algorithm on vectors, which a subclass implements in `_minimize`.

    loss             a scalar tensor
    var_list         the variables, all trainable ones by default
    equalities       scalar tensors to be held equal to zero
    inequalities     scalar tensors to be held non-negative
    var_to_bounds    variables with the pair of their lower and upper bounds: numbers, or arrays
                     that broadcast to the variable's shape
    **optimizer_kwargs    for the algorithm
    """

    def __init__(
        self,
        loss: Tensor,
        var_list: Iterable[Any] | None = None,
        equalities: Iterable[Tensor] | None = None,
        inequalities: Iterable[Tensor] | None = None,
        var_to_bounds: Mapping[Any, tuple[Any, Any]] | None = None,
        **optimizer_kwargs: Any,
    ) -> None:
        self._vars = list(trainable_variables() if var_list is None else var_list)
        if not self._vars:
            raise ValueError("No variables to optimize.")
        self._loss = _scalar(loss, "the loss")
        self._equalities = [_scalar(e, "equalities") for e in equalities or ()]
        self._inequalities = [_scalar(e, "inequalities") for e in inequalities or ()]
        self.optimizer_kwargs = optimizer_kwargs
        self._shapes = [_shape(var) for var in self._vars]
        self._packed_bounds = self._pack_bounds(var_to_bounds)
        self._packed_var = _pack(self._vars)
        self._packed_loss_grad = self._gradient(self._loss)
        self._packed_equality_grads = [self._gradient(e) for e in self._equalities]
        self._packed_inequality_grads = [self._gradient(e) for e in self._inequalities]
        self._new_values = [placeholder(var.dtype.base_dtype) for var in self._vars]
        pairs = zip(self._vars, self._new_values, self._shapes, strict=True)
        self._var_updates = [var.assign(b.reshape(x, shape)).op for var, x, shape in pairs]

    def _gradient(self, value: Tensor) -> Tensor:
        """Return the gradient with respect to all variables, as one vector; zeros where there's
        none.
        """
        found = gradients(value, self._vars)
        pairs = zip(found, self._vars, strict=True)
        return _pack([b.zeros_like(v) if g is None else convert_to_tensor(g) for g, v in pairs])

    def _pack_bounds(self, given: Mapping[Any, tuple[Any, Any]] | None) -> Bounds | None:
        if given is None:
            return None
        unknown = [var for var in given if not any(var is v for v in self._vars)]
        if unknown:
            raise ValueError(f"var_to_bounds has variables that are not optimized: {unknown}")
        found: Bounds = []
        for var, shape in zip(self._vars, self._shapes, strict=True):
            low, high = given.get(var, (-np.inf, np.inf))
            sides = [np.broadcast_to(np.asarray(x, "float64"), shape).ravel() for x in (low, high)]
            found += zip(*(side.tolist() for side in sides), strict=True)
        return found

    def minimize(
        self,
        session: Any = None,
        feed_dict: Mapping[Any, Any] | None = None,
        fetches: Sequence[Any] | None = None,
        step_callback: Callable[[np.ndarray], Any] | None = None,
        loss_callback: Callable[..., Any] | None = None,
        **run_kwargs: Any,
    ) -> None:
        """Minimize the loss and write the variables. If that fails, they are unchanged.

        session          the session of the variables, the default session by default
        feed_dict        fed to every evaluation
        fetches          computed with every evaluation of the loss, and passed to loss_callback
        step_callback    called with the vector of all variables after each step
        loss_callback    called with the values of `fetches` after each evaluation of the loss
        **run_kwargs     for the `session.run` that writes the variables
        """
        session = session or get_default_session()
        if session is None:
            raise ValueError("minimize needs a session: give one, or open `with session:`")
        evaluation = _Evaluation(self, session, dict(feed_dict or {}))
        evaluate = evaluation.function
        watched = list(fetches or ())
        loss = [self._loss, self._packed_loss_grad]
        start = session.run(self._packed_var)
        try:
            found = self._minimize(
                initial_val=start,
                loss_grad_func=evaluate(loss, watched, loss_callback or _nothing),
                equality_funcs=[evaluate(e) for e in self._equalities],
                equality_grad_funcs=[evaluate(e) for e in self._packed_equality_grads],
                inequality_funcs=[evaluate(e) for e in self._inequalities],
                inequality_grad_funcs=[evaluate(e) for e in self._packed_inequality_grads],
                packed_bounds=self._packed_bounds,
                step_callback=step_callback or _nothing,
                optimizer_kwargs=self.optimizer_kwargs,
            )
        except BaseException:
            evaluation.write_handles(start)
            raise
        pieces = self._pieces(np.asarray(found))
        values = zip(self._new_values, pieces, strict=True)
        session.run(self._var_updates, feed_dict=dict(values), **run_kwargs)

    def _pieces(self, packed: np.ndarray) -> list[np.ndarray]:
        """Return each variable's part of the vector."""
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        parts = np.split(packed, np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _minimize(
        self,
        initial_val: np.ndarray,
        loss_grad_func: Function,
        equality_funcs: list[Function],
        equality_grad_funcs: list[Function],
        inequality_funcs: list[Function],
        inequality_grad_funcs: list[Function],
        packed_bounds: Bounds | None,
        step_callback: Callable[[np.ndarray], Any],
        optimizer_kwargs: dict[str, Any],
    ) -> np.ndarray:
        """Return the vector that minimizes the loss.

        The functions take a vector; loss_grad_func returns the loss and its gradient, the others
        return a constraint's value or its gradient.
        """
        raise NotImplementedError(
            "To use ExternalOptimizerInterface, subclass from it and implement the _minimize() "
            "method."
        )


class _Evaluation:
    """Evaluates tensors in one session for trial values of the variables."""

    def __init__(
        self, interface: ExternalOptimizerInterface, session: Any, feed_dict: dict[Any, Any]
    ) -> None:
        self._interface = interface
        self._session = session
        self._feed_dict = feed_dict

    def function(
        self,
        tensors: Any,
        fetches: Sequence[Any] = (),
        callback: Callable[..., Any] = _nothing,
    ) -> Function:
        """A function of the vector that returns the values of `tensors`."""

        def evaluate(packed: np.ndarray) -> Any:
            pieces = self.write_handles(packed)
            pairs = zip(self._interface._vars, pieces, strict=True)
            fed = {v: x for v, x in pairs if not isinstance(v, ResourceVariable)}
            values, watched = self._session.run([tensors, fetches], {**self._feed_dict, **fed})
            callback(*watched)
            return values

        return evaluate

    def write_handles(self, packed: np.ndarray) -> list[np.ndarray]:
        """Write the resource variables, whose reads can't all be fed; return all pieces."""
        interface = self._interface
        pieces = interface._pieces(packed)
        all_of = zip(
            interface._vars, interface._new_values, interface._var_updates, pieces, strict=True
        )
        own = [
            (x, update, part) for v, x, update, part in all_of if isinstance(v, ResourceVariable)
        ]
        if own:
            self._session.run([update for _, update, _ in own], {x: part for x, _, part in own})
        return pieces


@export("contrib.opt.ScipyOptimizerInterface")
class ScipyOptimizerInterface(ExternalOptimizerInterface):
    """Minimizes by `scipy.optimize.minimize`, whose `method` ("L-BFGS-B" by default), `tol` and
    `options` can be given; see ExternalOptimizerInterface for the rest.

        optimizer = tf.contrib.opt.ScipyOptimizerInterface(loss, options={"maxiter": 100})
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            optimizer.minimize(session)

    Needs SciPy: pip install "headrace[scipy]".
    """

    _DEFAULT_METHOD = "L-BFGS-B"

    def _minimize(
        self,
        initial_val: np.ndarray,
        loss_grad_func: Function,
        equality_funcs: list[Function],
        equality_grad_funcs: list[Function],
        inequality_funcs: list[Function],
        inequality_grad_funcs: list[Function],
        packed_bounds: Bounds | None,
        step_callback: Callable[[np.ndarray], Any],
        optimizer_kwargs: dict[str, Any],
    ) -> np.ndarray:
        def loss_and_gradient(packed: np.ndarray) -> tuple[float, np.ndarray]:
            loss, gradient = loss_grad_func(packed)
            return float(loss), np.asarray(gradient, "float64")  # its routines expect float64

        automatic = {
            "jac": True,
            # By position: SciPy inspects parameter names and may pass more than the vector.
            "callback": lambda packed: step_callback(packed),
            "constraints": [
                *_constraints("eq", equality_funcs, equality_grad_funcs),
                *_constraints("ineq", inequality_funcs, inequality_grad_funcs),
            ],
            "bounds": packed_bounds,
        }
        for name in automatic:
            if name not in optimizer_kwargs:
                continue
            if name == "bounds":
                raise ValueError("Bounds must be set using the var_to_bounds argument")
            raise ValueError(
                f"Optimizer keyword arg '{name}' is set automatically and cannot be injected "
                "manually"
            )
        given = {"method": self._DEFAULT_METHOD, **optimizer_kwargs}
        result = _scipy_minimize()(loss_and_gradient, initial_val, **automatic, **given)
        logging.getLogger("headrace").info(
            "Optimization terminated: %s; loss %g, %s iterations, %s evaluations",
            result.message,
            result.fun,
            result.get("nit"),
            result.get("nfev"),
        )
        return result.x


def _constraints(
    kind: str, functions: list[Function], gradients: list[Function]
) -> list[dict[str, Any]]:
    pairs = zip(functions, gradients, strict=True)
    return [{"type": kind, "fun": function, "jac": gradient} for function, gradient in pairs]


def _scipy_minimize() -> Callable[..., Any]:
    try:
        from scipy.optimize import minimize  # an optional dependency
    except ImportError as error:
        raise ImportError(
            "ScipyOptimizerInterface needs SciPy, which is not installed: "
            'pip install "headrace[scipy]"'
        ) from error
    return minimize


def _scalar(tensor: Tensor, what: str) -> Tensor:
    if tensor.shape.num_elements() not in (None, 1):
        raise ValueError(f"{what} must be scalar, not of shape {tensor.shape}: {tensor.name}")
    return b.reshape(tensor, [])


def _shape(var: Any) -> tuple[int, ...]:
    if not var.shape.is_fully_defined():
        raise ValueError(f"the shape of {var.name} must be known: {var.shape}")
    return tuple(var.shape.as_list())


def _pack(tensors: Sequence[Any]) -> Tensor:
    flat = [b.reshape(tensor, [-1]) for tensor in tensors]
    return flat[0] if len(flat) == 1 else b.concat(flat, 0)
