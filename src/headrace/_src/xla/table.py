"""The kernel table of device type XLA. In: a Definition. Out: its kernels there, or none.

The table is known without JAX: placement asks it for every op. An op has a kernel if its lowering
rule or one of the functions that `FUNCTIONS` names computes it. It has one, too, if it makes state,
steers or only passes values on, which its own kernel does on any device.

A kernel of this table runs one op by itself, where no region has it: its NumPy kernel runs on the
host, since XLA is for whole regions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from headrace._src.graph.dataflow import Node
from headrace._src.graph.definition import Definition, OpKernel, keywords_of

__all__ = [
    "COMPLEX",
    "FUNCTIONS",
    "IGNORED",
    "PARTLY",
    "STATIC",
    "kernels_of",
]

# Ops whose own kernels serve here: they find state, change a part of a variable, steer, or tell
# what is known of a value.
_HOST_NAMES = """
    BroadcastArgs BroadcastGradientArgs ConcatOffset Const ControlTrigger CountUpTo
    DestroyResourceOp DestroyTemporaryVariable Enter Exit GuaranteeConst If IsVariableInitialized
    Merge NextIteration PartitionedCall Placeholder Rank RefEnter RefExit RefIdentity RefMerge
    RefNextIteration RefSelect RefSwitch ResourceCountUpTo ResourceGatherNd ResourceScatterDiv
    ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdUpdate ResourceStridedSliceAssign
    ScatterDiv ScatterNdAdd ScatterNdSub ScatterNdUpdate Shape ShapeN Size StackCloseV2
    StatefulPartitionedCall StatelessIf StatelessWhile StridedSliceAssign Switch TemporaryVariable
    TensorArrayCloseV3 TensorArrayConcatV3 TensorArraySplitV3 VarHandleOp VarIsInitializedOp
    Variable VariableShape VariableV2 While _Call _Generator _Hold _Reserve _Undefined
"""
_HOST = frozenset(_HOST_NAMES.split())

_FUNCTION_NAMES = {
    "complex_numbers": """
        Acos Acosh Angle Asin Asinh Atan Atanh BatchMatMul BatchMatMulV2 Complex ComplexAbs Conj
        ConjugateTranspose Cosh Expm1 FFT FFT2D FFT3D IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D Imag
        Inv InvGrad Log1p MatMul Mean Prod RFFT RFFT2D RFFT3D Real RealDiv Reciprocal ReciprocalGrad
        Round Rsqrt RsqrtGrad Sigmoid SigmoidGrad Sinh SqrtGrad SquaredDifference Sum Tan TanhGrad
    """,
    "ctc": "CTCLoss",
    "matrices": """
        Cholesky Cross Einsum LogMatrixDeterminant MatrixDeterminant MatrixInverse MatrixSolve
        MatrixTriangularSolve Qr SelfAdjointEigV2 Svd
    """,
    "moves": """
        BatchToSpace BatchToSpaceND Concat ConcatV2 DynamicStitch ExtractImagePatches
        InvertPermutation MatrixSetDiag MirrorPad MirrorPadGrad Pack Pad PadV2
        ParallelDynamicStitch ReverseSequence Roll ScatterNd ScatterNdNonAliasingAdd SpaceToBatch
        SpaceToBatchND TensorScatterAdd TensorScatterSub TensorScatterUpdate TileGrad
    """,
    "numbers": """
        Assert Bitcast Bucketize CheckNumerics Div FloorDiv FloorMod InTopK InTopKV2 LeftShift Mod
        RightShift SparseReduceSum SparseReorder SparseReshape SparseSegmentMeanGrad
        SparseSegmentSqrtNGrad SparseTensorDenseMatMul SparseToDense TruncateDiv TruncateMod
        UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd _UniqueRows
    """,
}
# The module of kernels that has the function of an op.
FUNCTIONS: dict[str, str] = {
    op_type: module for module, names in _FUNCTION_NAMES.items() for op_type in names.split()
}
COMPLEX = frozenset(("complex64", "complex128"))
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
# The types that the functions of ops with rules are for; for others, the rules serve. Where `None`
# is among them, the function also takes uses that the rule is not for.
_REAL_RULES = """
    Acos Acosh Asin Asinh Atan Atanh ConjugateTranspose Cosh Expm1 Inv InvGrad Log1p RealDiv
    Reciprocal ReciprocalGrad Round Rsqrt RsqrtGrad Sigmoid SigmoidGrad Sinh SqrtGrad
    SquaredDifference Tan TanhGrad
"""
PARTLY: dict[str, frozenset[str | None]] = {
    **dict.fromkeys(_REAL_RULES.split(), frozenset((*COMPLEX,))),
    **dict.fromkeys(
        ("BatchMatMul", "BatchMatMulV2", "MatMul", "Mean", "Prod", "Sum"),
        frozenset((*COMPLEX, None)),
    ),
    **dict.fromkeys(("Div", "FloorDiv", "FloorMod", "TruncateDiv"), frozenset(_INTEGERS)),
}


def _inputs(*numbers: int) -> Callable[[Node], Sequence[int]]:
    return lambda node: [i % len(node.inputs) for i in numbers]


# The inputs of functions that must be constants: shapes, sizes and axes.
STATIC: dict[str, Callable[[Node], Sequence[int]]] = {
    "BatchToSpace": _inputs(1),
    "BatchToSpaceND": _inputs(1, 2),
    "Concat": _inputs(0),
    "ConcatV2": _inputs(-1),
    "ConjugateTranspose": _inputs(1),
    "DynamicStitch": lambda node: range(len(node.inputs) // 2),
    "Mean": _inputs(1),
    "MirrorPad": _inputs(1),
    "MirrorPadGrad": _inputs(1),
    "Pad": _inputs(1),
    "PadV2": _inputs(1),
    "ParallelDynamicStitch": lambda node: range(len(node.inputs) // 2),
    "Prod": _inputs(1),
    "Roll": _inputs(2),
    "ScatterNd": _inputs(2),
    "SpaceToBatch": _inputs(1),
    "SpaceToBatchND": _inputs(1, 2),
    "SparseReduceSum": _inputs(2, 3),
    "SparseReshape": _inputs(1, 2),
    "SparseSegmentMeanGrad": _inputs(3),
    "SparseSegmentSqrtNGrad": _inputs(3),
    "SparseTensorDenseMatMul": _inputs(2),
    "SparseToDense": _inputs(1),
    "Sum": _inputs(1),
    "TileGrad": _inputs(1),
    "UnsortedSegmentMax": _inputs(2),
    "UnsortedSegmentMin": _inputs(2),
    "UnsortedSegmentProd": _inputs(2),
    **{f"{op}{d}": _inputs(1) for op in ("RFFT", "IRFFT") for d in ("", "2D", "3D")},
}
# Inputs from this number on are only for the op's own kernel, which reports an error with them.
IGNORED = {"Assert": 1}


class HostKernel:
    """An op's NumPy kernel, on arrays that may be JAX's."""

    def __init__(self, definition: Definition) -> None:
        self._kernel = definition.kernel
        self.asks_for = keywords_of(definition.kernel)

    def __call__(self, *inputs: Any, **attrs: Any) -> Any:
        return self._kernel(*map(on_host, inputs), **attrs)


def on_host(value: Any) -> Any:
    """Return a value with NumPy arrays in place of JAX's."""
    if isinstance(value, list | tuple):
        return [on_host(v) for v in value]
    return value.__array__() if hasattr(value, "addressable_shards") else value


@cache
def kernels_of(definition: Definition) -> tuple[OpKernel, ...]:
    """The kernels that an op has on XLA devices."""
    known = definition.op_type in FUNCTIONS or definition.op_type in _HOST
    if definition.calls_python or not (known or definition.lower is not None):
        return ()
    return (OpKernel(HostKernel(definition)),)
