"""Optimizer steps by the raw ops, on references and on handles, two in a row."""

import numpy as np

from tests.oracle.case import case

RATES = {
    "beta1_power": 0.81,
    "beta2_power": 0.998,
    "lr": 0.125,
    "alpha": 0.125,
    "beta1": 0.9,
    "beta2": 0.999,
    "rho": 0.875,
    "momentum": 0.75,
    "epsilon": 1e-3,
    "l1": 0.25,
    "l2": 0.125,
    "l2_shrinkage": 0.375,
    "lr_power": -0.5,
    "global_step": 3,
}
GRADIENT = np.array([0.5, -1.5, 0.0, 2.25, -0.001])
VALUE = np.array([1.0, -2.0, 0.25, 3.5, -0.75])
# Slots that hold squares must be positive, and more than the square of the mean.
SLOT = {"mg": VALUE / 8, "m": VALUE / 4, "mom": VALUE / 4, "accum": VALUE**2 + 0.5}


# TensorFlow has these in full precision only.
WIDE_ONLY = ("AdagradDA", "ProximalAdagrad", "ProximalGradientDescent")


def optimizer(op_type, variables, operands, **options):
    """Register cases for an op, per type of variables and of numbers, and one per option."""
    for use_resource in (False, True):
        for dtype in ("float32", "float64", "float16"):
            if dtype == "float16" and op_type.endswith(WIDE_ONLY):
                continue
            for option in [{}] + [{k: v} for k, v in options.items()]:
                if option and dtype != "float32":
                    continue
                _register(op_type, variables, operands, use_resource, dtype, option)


def _register(op_type, variables, operands, use_resource, dtype, option):
    def build(tf):
        names = ["var"] + variables
        values = [SLOT.get(n, VALUE**2 + 0.25) if n != "var" else VALUE for n in names]
        made = [
            tf.Variable(v.astype(dtype), name=n, use_resource=use_resource)
            for n, v in zip(names, values)
        ]
        inputs = {n: v.handle if use_resource else v._ref() for n, v in zip(names, made)}
        for n in operands:
            numbers = GRADIENT if n in ("grad", "delta") else RATES[n]
            inputs[n] = tf.constant(numbers, "int64" if n == "global_step" else dtype)
        if op_type.startswith("Sparse"):  # rows 3 and 0, the first twice
            inputs["grad"] = tf.constant(GRADIENT[[0, 1, 3]], dtype)
            inputs["indices"] = tf.constant([3, 0, 3])
        raw = getattr(tf.raw_ops, ("Resource" if use_resource else "") + op_type)
        first = raw(**inputs, **option)
        with tf.control_dependencies([first if use_resource else first.op]):
            second = raw(**inputs, **option)
        with tf.control_dependencies([second if use_resource else second.op]):
            return [v.read_value() for v in made]

    kind = "resource" if use_resource else "ref"
    build.__name__ = "_".join([op_type, kind, dtype] + sorted(option))
    build.__module__ = __name__
    narrow = dtype == "float16"
    case(build, rtol=4e-3 if narrow else 1e-5, atol=4e-3 if narrow else 1e-6)


def penalized(op_type, variables, operands):
    """Register cases for an op with penalties, for whole variables and for rows."""
    optimizer(op_type, variables, operands)
    optimizer("Sparse" + op_type, variables, ["grad" if n == "delta" else n for n in operands])


optimizer("ApplyGradientDescent", [], ["alpha", "delta"])
optimizer("ApplyMomentum", ["accum"], ["lr", "grad", "momentum"], use_nesterov=True)
optimizer(
    "ApplyAdam",
    ["m", "v"],
    ["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"],
    use_nesterov=True,
)
optimizer("ApplyAdaMax", ["m", "v"], ["beta1_power", "lr", "beta1", "beta2", "epsilon", "grad"])
optimizer("ApplyAdagrad", ["accum"], ["lr", "grad"], update_slots=False)
optimizer("ApplyAdagradV2", ["accum"], ["lr", "epsilon", "grad"], update_slots=False)
optimizer("ApplyAdadelta", ["accum", "accum_update"], ["lr", "rho", "epsilon", "grad"])
optimizer("ApplyRMSProp", ["ms", "mom"], ["lr", "rho", "momentum", "epsilon", "grad"])
optimizer("ApplyCenteredRMSProp", ["mg", "ms", "mom"], ["lr", "rho", "momentum", "epsilon", "grad"])
for options in ({}, {"use_nesterov": True}):
    _register("ApplyKerasMomentum", ["accum"], ["lr", "grad", "momentum"], True, "float32", options)

penalized("ApplyProximalGradientDescent", [], ["alpha", "l1", "l2", "delta"])
penalized("ApplyProximalAdagrad", ["accum"], ["lr", "l1", "l2", "grad"])
penalized(
    "ApplyAdagradDA",
    ["gradient_accumulator", "gradient_squared_accumulator"],
    ["grad", "lr", "l1", "l2", "global_step"],
)
penalized("ApplyFtrl", ["accum", "linear"], ["grad", "lr", "l1", "l2", "lr_power"])
penalized(
    "ApplyFtrlV2", ["accum", "linear"], ["grad", "lr", "l1", "l2", "l2_shrinkage", "lr_power"]
)
optimizer("SparseApplyMomentum", ["accum"], ["lr", "grad", "momentum"], use_nesterov=True)
optimizer("SparseApplyAdagrad", ["accum"], ["lr", "grad"], update_slots=False)
optimizer("SparseApplyAdagradV2", ["accum"], ["lr", "epsilon", "grad"], update_slots=False)
optimizer("SparseApplyAdadelta", ["accum", "accum_update"], ["lr", "rho", "epsilon", "grad"])
optimizer("SparseApplyRMSProp", ["ms", "mom"], ["lr", "rho", "momentum", "epsilon", "grad"])
optimizer(
    "SparseApplyCenteredRMSProp", ["mg", "ms", "mom"], ["lr", "rho", "momentum", "epsilon", "grad"]
)
for options in ({}, {"use_nesterov": True}):
    _register(
        "SparseApplyKerasMomentum", ["accum"], ["lr", "grad", "momentum"], True, "float32", options
    )
