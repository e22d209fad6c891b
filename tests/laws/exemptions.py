"""What the laws leave out: by the op's exact name, each with the reason. `test_exemptions` counts
them and fails when an entry is missing, or stands here without need.
"""


def _named(reason, names):
    return dict.fromkeys(names.split(), reason)


def is_complex(op):
    return any(t.dtype.base_dtype.is_complex for t in (*op.inputs, *op.outputs))


_FUNCTIONS = "it calls functions of a graph's library: tests/unit/gradients/test_functions.py"
_ROWS = "its handle lives in one step: gradients of loops in tests/unit/gradients"
_LISTS = "its handle lives in one step: tests/unit/ops/test_tensor_lists.py"

# Ops with a gradient that isn't compared with finite differences.
GRADIENT = {
    **_named(
        _FUNCTIONS,
        "Case EagerPyFunc For If PartitionedCall RemoteCall StatefulPartitionedCall StatelessIf "
        "StatelessWhile SymbolicGradient While",
    ),
    **_named(
        "it steers a branch or a loop: tests/unit/gradients/test_control_flow.py", "Enter Switch"
    ),
    **_named("its gradient is an error, which is what it's for", "PreventGradient"),
    **_named(
        "the reserved mean and variance count as functions of x, as in TensorFlow, so that they "
        "can't be perturbed alone: tests/unit/ops/test_nn_functions.py",
        "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3",
    ),
    **_named(
        "its gradient is that of a sample at a constant probability, not that of the rejections "
        "which draw it: tests/unit/ops/test_random_ops.py",
        "RandomGamma",
    ),
    **_named(
        _ROWS,
        "TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayReadV3 TensorArrayScatterV3 "
        "TensorArraySplitV3 TensorArrayWriteV3",
    ),
    **_named(
        _LISTS,
        "OptionalFromValue OptionalGetValue TensorListConcat TensorListConcatV2 "
        "TensorListFromTensor TensorListGather TensorListGetItem TensorListPopBack "
        "TensorListPushBack TensorListResize TensorListScatter TensorListScatterIntoExistingList "
        "TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack",
    ),
}

# Ops whose gradient is compared, except in these uses: (which, why). In all of them it is
# TensorFlow's, node by node (tests/oracle).
GRADIENT_OF_SOME = {
    "EuclideanNorm": (is_complex, "the incoming gradient's imaginary part isn't dropped"),
    "LogMatrixDeterminant": (is_complex, "the sign of the determinant counts as constant"),
    "SelfAdjointEigV2": (is_complex, "the phase of an eigenvector is arbitrary"),
    "Sign": (is_complex, "the gradient is 0, although the direction of a number changes"),
    "SparseDenseCwiseDiv": (is_complex, "the gradient isn't conjugated"),
    "SparseDenseCwiseMul": (is_complex, "the gradient isn't conjugated"),
    "SparseSparseMinimum": (is_complex, "the gradient compares, and complex numbers have no order"),
    "SquaredDifference": (is_complex, "the gradient isn't conjugated"),
    "Svd": (is_complex, "the incoming gradient's imaginary part isn't dropped"),
    "LSTMBlockCell": (
        lambda op: op._attrs["cell_clip"] < 1,
        "the gradient passes the clipping of the cell as if there was none",
    ),
}

NO_BAD_INPUT = {}
ACCEPTED = {}
