"""The canned estimators of tf.estimator: linear models, networks, both combined, and baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core.export import export
from headrace._src.estimator.canned import models
from headrace._src.estimator.canned.dnn import Network
from headrace._src.estimator.canned.heads import Head, RegressionHead, classifier_head
from headrace._src.estimator.estimator import Estimator
from headrace._src.estimator.run_config import RunConfig
from headrace._src.layers.losses import Reduction
from headrace._src.ops.base.define import b

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
]

relu = b.relu


# ---- Linear models -------------------------------------------------------------------------------


class _Linear(Estimator):
    def __init__(
        self,
        head: Head,
        columns: Any,
        optimizer: Any,
        partitioner: Any,
        combiner: str,
        **rest: Any,
    ) -> None:
        columns = tuple(columns or ())

        def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> Any:
            return models.linear_model(
                features, labels, mode, config, head, columns, optimizer, partitioner, combiner
            )

        super().__init__(model_fn, **rest)


@export("estimator.LinearClassifier")
class LinearClassifier(_Linear):
    """A linear classifier for two or more classes, trained with the cross entropy.

    optimizer: a name ('Adagrad', 'Adam', 'Ftrl', 'RMSProp', 'SGD'), an optimizer, or a function
    that makes one. label_vocabulary: the names of classes; labels are then names.
    """

    def __init__(
        self,
        feature_columns: Any,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        partitioner: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(
            head,
            feature_columns,
            optimizer,
            partitioner,
            sparse_combiner,
            model_dir=model_dir,
            config=config,
            warm_start_from=warm_start_from,
        )


@export("estimator.LinearRegressor")
class LinearRegressor(_Linear):
    """A linear regressor, trained with the squared error. Arguments as for LinearClassifier."""

    def __init__(
        self,
        feature_columns: Any,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        partitioner: Any = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        super().__init__(
            RegressionHead(label_dimension, weight_column, loss_reduction),
            feature_columns,
            optimizer,
            partitioner,
            sparse_combiner,
            model_dir=model_dir,
            config=config,
            warm_start_from=warm_start_from,
        )


@export("estimator.LinearEstimator")
class LinearEstimator(_Linear):
    """A linear model with a user-defined head."""

    def __init__(
        self,
        head: Any,
        feature_columns: Any,
        model_dir: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        partitioner: Any = None,
        sparse_combiner: str = "sum",
    ) -> None:
        rest = {"model_dir": model_dir, "config": config}
        super().__init__(head, feature_columns, optimizer, partitioner, sparse_combiner, **rest)


# ---- Networks ------------------------------------------------------------------------------------


class _DNN(Estimator):
    def __init__(
        self, head: Head, network: Network, optimizer: Any, partitioner: Any, **rest: Any
    ) -> None:
        def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> Any:
            return models.dnn_model(
                features, labels, mode, config, head, network, optimizer, partitioner
            )

        super().__init__(model_fn, **rest)


@export("estimator.DNNClassifier")
class DNNClassifier(_DNN):
    """A classifier of dense layers for two or more classes.

    hidden_units: the sizes of the layers. dropout: the fraction of a layer's outputs that is
    dropped in training. Other arguments as for LinearClassifier.
    """

    def __init__(
        self,
        hidden_units: Any,
        feature_columns: Any,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Callable[..., Any] | str | None = relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(
            classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction),
            Network(tuple(feature_columns or ()), hidden_units, activation_fn, dropout, batch_norm),
            optimizer,
            input_layer_partitioner,
            model_dir=model_dir,
            config=config,
            warm_start_from=warm_start_from,
        )


@export("estimator.DNNRegressor")
class DNNRegressor(_DNN):
    """A regressor of dense layers. Arguments as for DNNClassifier."""

    def __init__(
        self,
        hidden_units: Any,
        feature_columns: Any,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Callable[..., Any] | str | None = relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(
            RegressionHead(label_dimension, weight_column, loss_reduction),
            Network(tuple(feature_columns or ()), hidden_units, activation_fn, dropout, batch_norm),
            optimizer,
            input_layer_partitioner,
            model_dir=model_dir,
            config=config,
            warm_start_from=warm_start_from,
        )


@export("estimator.DNNEstimator")
class DNNEstimator(_DNN):
    """Dense layers with a user-defined head."""

    def __init__(
        self,
        head: Any,
        hidden_units: Any,
        feature_columns: Any,
        model_dir: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Callable[..., Any] | str | None = relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(
            head,
            Network(tuple(feature_columns or ()), hidden_units, activation_fn, dropout, batch_norm),
            optimizer,
            input_layer_partitioner,
            model_dir=model_dir,
            config=config,
            warm_start_from=warm_start_from,
        )


# ---- Wide and deep -------------------------------------------------------------------------------


class _Combined(Estimator):
    def __init__(
        self,
        head: Head,
        network: Network,
        dnn_optimizer: Any,
        linear_columns: Any,
        linear_optimizer: Any,
        combiner: str,
        partitioner: Any,
        **rest: Any,
    ) -> None:
        columns = tuple(linear_columns or ())
        if not columns and not network.columns:
            raise ValueError(
                "Either linear_feature_columns or dnn_feature_columns must be defined."
            )

        def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> Any:
            return models.combined_model(
                features,
                labels,
                mode,
                config,
                head,
                network,
                dnn_optimizer,
                columns,
                linear_optimizer,
                combiner,
                partitioner,
            )

        super().__init__(model_fn, **rest)


@export("estimator.DNNLinearCombinedClassifier")
class DNNLinearCombinedClassifier(_Combined):
    """A classifier that trains a linear model and a network together: "wide and deep"."""

    def __init__(
        self,
        model_dir: Any = None,
        linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Any = None,
        dnn_activation_fn: Callable[..., Any] | str | None = relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        super().__init__(
            classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction),
            Network(
                tuple(dnn_feature_columns or ()),
                dnn_hidden_units,
                dnn_activation_fn,
                dnn_dropout,
                batch_norm,
            ),
            dnn_optimizer,
            linear_feature_columns,
            linear_optimizer,
            linear_sparse_combiner,
            input_layer_partitioner,
            model_dir=model_dir,
            config=config,
            warm_start_from=warm_start_from,
        )


@export("estimator.DNNLinearCombinedRegressor")
class DNNLinearCombinedRegressor(_Combined):
    """A regressor that trains a linear model and a network together."""

    def __init__(
        self,
        model_dir: Any = None,
        linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Any = None,
        dnn_activation_fn: Callable[..., Any] | str | None = relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        super().__init__(
            RegressionHead(label_dimension, weight_column, loss_reduction),
            Network(
                tuple(dnn_feature_columns or ()),
                dnn_hidden_units,
                dnn_activation_fn,
                dnn_dropout,
                batch_norm,
            ),
            dnn_optimizer,
            linear_feature_columns,
            linear_optimizer,
            linear_sparse_combiner,
            input_layer_partitioner,
            model_dir=model_dir,
            config=config,
            warm_start_from=warm_start_from,
        )


@export("estimator.DNNLinearCombinedEstimator")
class DNNLinearCombinedEstimator(_Combined):
    """A linear model and a network, trained together, with a user-defined head."""

    def __init__(
        self,
        head: Any,
        model_dir: Any = None,
        linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Any = None,
        dnn_activation_fn: Callable[..., Any] | str | None = relu,
        dnn_dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: RunConfig | None = None,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        super().__init__(
            head,
            Network(
                tuple(dnn_feature_columns or ()),
                dnn_hidden_units,
                dnn_activation_fn,
                dnn_dropout,
                False,
            ),
            dnn_optimizer,
            linear_feature_columns,
            linear_optimizer,
            linear_sparse_combiner,
            input_layer_partitioner,
            model_dir=model_dir,
            config=config,
        )


# ---- Baselines -----------------------------------------------------------------------------------


class _Baseline(Estimator):
    def __init__(self, head: Head, optimizer: Any, weight_column: Any, **rest: Any) -> None:
        def model_fn(features: Any, labels: Any, mode: str) -> Any:
            return models.baseline_model(features, labels, mode, head, optimizer, weight_column)

        super().__init__(model_fn, **rest)


@export("estimator.BaselineClassifier")
class BaselineClassifier(_Baseline):
    """A classifier that ignores its features and learns the class frequencies."""

    def __init__(
        self,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = Reduction.SUM,
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, optimizer, weight_column, model_dir=model_dir, config=config)


@export("estimator.BaselineRegressor")
class BaselineRegressor(_Baseline):
    """A regressor that ignores its features and learns the mean."""

    def __init__(
        self,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = Reduction.SUM,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(head, optimizer, weight_column, model_dir=model_dir, config=config)


@export("estimator.BaselineEstimator")
class BaselineEstimator(_Baseline):
    """A model that ignores its features, with a user-defined head."""

    def __init__(
        self,
        head: Any,
        model_dir: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
    ) -> None:
        super().__init__(head, optimizer, None, model_dir=model_dir, config=config)
