"""Exporters: when train_and_evaluate exports a model, and which exports it keeps."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from headrace._src.core import log
from headrace._src.core.export import export
from headrace._src.estimator.user_calls import argument_names
from headrace._src.summary.event_reader import summary_iterator

__all__ = ["BestExporter", "Exporter", "FinalExporter", "LatestExporter"]

Metrics = Mapping[str, Any]


@export("estimator.Exporter")
class Exporter:
    """An object that is called after each evaluation; subclasses define `name` and `export`."""

    @property
    def name(self) -> str:
        """The name of its directory inside `export` in the model's directory."""
        raise NotImplementedError

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Metrics,
        is_the_final_export: bool,
    ) -> Any:
        """Export if wanted; return the export's directory, or None."""
        raise NotImplementedError


class _SavedModelExporter(Exporter):
    """Exports SavedModels whenever `_wanted`, and removes all but the newest."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: dict[str, str] | None,
        as_text: bool,
        exports_to_keep: int | None = None,
    ) -> None:
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError(
                f"`exports_to_keep`, if provided, must be a positive number. Got {exports_to_keep}"
            )
        self._name = name
        self._receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text
        self._keep = exports_to_keep

    @property
    def name(self) -> str:
        return self._name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Metrics,
        is_the_final_export: bool,
    ) -> Any:
        if not self._wanted(estimator, eval_result, is_the_final_export):
            return None
        result = estimator.export_saved_model(
            export_path,
            self._receiver_fn,
            assets_extra=self._assets_extra,
            as_text=self._as_text,
            checkpoint_path=checkpoint_path,
        )
        if self._keep is not None:
            _remove_all_but(export_path, self._keep)
        return result

    def _wanted(self, estimator: Any, eval_result: Metrics, is_last: bool) -> bool:
        return True


def _remove_all_but(directory: str, count: int) -> None:
    """Remove all but the newest exports, which are named by their time in seconds."""
    exports = sorted(name for name in os.listdir(directory) if len(name) == 10 and name.isdigit())
    for name in exports[:-count]:
        shutil.rmtree(os.path.join(directory, name))


@export("estimator.LatestExporter")
class LatestExporter(_SavedModelExporter):
    """Exports after each evaluation."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)


@export("estimator.FinalExporter")
class FinalExporter(_SavedModelExporter):
    """Exports once, at the end of training."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)

    def _wanted(self, estimator: Any, eval_result: Metrics, is_last: bool) -> bool:
        if is_last:
            log.info("Performing the final export in the end of training.")
        return is_last


def _loss_smaller(best_eval_result: Metrics, current_eval_result: Metrics) -> bool:
    for name, result in (
        ("best_eval_result", best_eval_result),
        ("current_eval_result", current_eval_result),
    ):
        if not result or "loss" not in result:
            raise ValueError(f"{name} cannot be empty or no loss is found in it.")
    return best_eval_result["loss"] > current_eval_result["loss"]


@export("estimator.BestExporter")
class BestExporter(_SavedModelExporter):
    """Exports whenever a model is better than all before.

    compare_fn: a function of best_eval_result and current_eval_result that returns whether the
    latter is better. event_file_pattern: the event files, in the model's directory, with results of
    earlier runs; None: ignore these.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., bool] = _loss_smaller,
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        if compare_fn is None:
            raise ValueError("`compare_fn` must not be None.")
        wanted = {"best_eval_result", "current_eval_result"}
        if argument_names(compare_fn) != wanted:
            raise ValueError(
                f"compare_fn ({compare_fn}) must have the arguments {' and '.join(sorted(wanted))}"
            )
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        self._is_better = compare_fn
        self._pattern = event_file_pattern
        self._model_dir: str | None = None
        self._best: Metrics | None = None

    def _wanted(self, estimator: Any, eval_result: Metrics, is_last: bool) -> bool:
        if self._pattern and self._model_dir != estimator.model_dir:
            log.info("Loading best metric from event files.")
            self._model_dir = estimator.model_dir
            self._best = self._best_so_far(os.path.join(estimator.model_dir, self._pattern))
        if not self._improves(eval_result):
            return False
        log.info("Performing best model export.")
        self._best = eval_result
        return True

    def _improves(self, result: Metrics) -> bool:
        return self._best is None or self._is_better(
            best_eval_result=self._best, current_eval_result=result
        )

    def _best_so_far(self, pattern: str) -> Metrics | None:
        self._best = None
        for path in sorted(glob.glob(pattern)):
            for event in summary_iterator(path):
                values = event.summary.value if event.HasField("summary") else []
                result = {v.tag: v.simple_value for v in values if v.HasField("simple_value")}
                if result and self._improves(result):
                    self._best = result
        return self._best
