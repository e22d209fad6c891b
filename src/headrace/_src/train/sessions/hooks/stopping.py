"""Hooks that start or stop training: stop at a step, stop if the loss is NaN, start at a step."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from headrace._src.core import log
from headrace._src.core.export import export
from headrace._src.train.sessions.global_step import read_global_step
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = ["GlobalStepWaiterHook", "NanLossDuringTrainingError", "NanTensorHook", "StopAtStepHook"]

_GLANCE = 0.5  # seconds between two reads of the global step
_FAR = 1000  # steps between two messages while waiting


@export("train.StopAtStepHook", "estimator.StopAtStepHook")
class StopAtStepHook(SessionRunHook):
    """Stops after `num_steps` further steps, or at the global step `last_step`."""

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        self._last_step = last_step

    def begin(self) -> None:
        self._global_step_tensor = read_global_step("StopAtStepHook")

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._last_step is None:  # not after a recovery: the last step stays the same
            self._last_step = session.run(self._global_step_tensor) + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        # The fetched step may be the one before or after the training operation.
        if run_values.results + 1 < self._last_step:
            return
        if run_context.session.run(self._global_step_tensor) >= self._last_step:
            run_context.request_stop()


@export("train.NanLossDuringTrainingError", "estimator.NanLossDuringTrainingError")
class NanLossDuringTrainingError(RuntimeError):
    """The loss became NaN."""

    def __str__(self) -> str:
        return (
            "NaN loss during training.\n"
            "  HEADRACE_CHECK_NUMERICS=1 shows the first operation that makes a NaN."
        )


@export("train.NanTensorHook", "estimator.NanTensorHook")
class NanTensorHook(SessionRunHook):
    """Checks a loss after each step: if it's NaN, raises NanLossDuringTrainingError, or just stops
    if `fail_on_nan_loss` is false.
    """

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self._loss_tensor = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._loss_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not np.isnan(run_values.results):
            return
        message = "Model diverged with loss = NaN."
        if self._fail_on_nan_loss:
            log.error(message)
            raise NanLossDuringTrainingError
        log.warning(message)
        run_context.request_stop()


@export("train.GlobalStepWaiterHook", "estimator.GlobalStepWaiterHook")
class GlobalStepWaiterHook(SessionRunHook):
    """Delays the first run until the global step, advanced by other workers, is
    `wait_until_step`.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step

    def begin(self) -> None:
        self._started = False
        self._global_step_tensor = read_global_step("_GlobalStepWaiterHook")

    def before_run(self, run_context: SessionRunContext) -> None:
        if self._started:
            return
        if self._wait_until_step > 0:
            self._wait(run_context.session, self._wait_until_step)
        self._started = True

    def _wait(self, session: Any, goal: int) -> None:
        log.info("Waiting for global step %d before starting training.", goal)
        told = 0
        while (step := session.run(self._global_step_tensor)) < goal:
            if step - told > _FAR:
                log.info(
                    "Waiting for global step %d before starting training. Current step is %d.",
                    goal,
                    step,
                )
                told = step
            time.sleep(_GLANCE)
