"""Which ops may compute in 16 bits when a step uses mixed precision. In: a definition. Out: a
Precision.

Contractions profit and lose little: their sums are accumulated in float32 anyway. Between two of
them, ops that round no worse than they do also compute in 16 bits. Ops that sum many numbers, or
have values far from 1, stay in float32. The lists roughly match those of TensorFlow's rewriter.
"""

from __future__ import annotations

import enum

from headrace._src.graph.definition import Definition, Kind

__all__ = ["Precision", "precision_of"]


class Precision(enum.Enum):
    """NARROW: computes in 16 bits. EITHER: does so between two NARROW ops. WIDE: never does, nor do
    ops between two of these. UNKNOWN: keeps its type, and implies nothing about its neighbours.
    """

    NARROW = enum.auto()
    EITHER = enum.auto()
    WIDE = enum.auto()
    UNKNOWN = enum.auto()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# They move elements, or choose among them: 16-bit inputs give the same 16-bit outputs.
_MOVES = _names(
    """
    Abs BatchToSpaceND BroadcastTo ConcatV2 DepthToSpace ExpandDims Identity IdentityN LeakyRelu
    LeakyReluGrad MaxPool MaxPool3D MaxPool3DGrad MaxPoolGrad MaxPoolV2 MaxPoolGradV2 Maximum
    Minimum MirrorPad Neg Pack Pad PadV2 PreventGradient Relu Relu6 Relu6Grad ReluGrad Reshape
    ReverseV2 Select SelectV2 Slice SpaceToBatchND SpaceToDepth Split SplitV Squeeze StopGradient
    StridedSlice StridedSliceGrad Tile Transpose Unpack ZerosLike
    """
)
# They round, once.
_ROUNDS = _names(
    """
    Add AddN AddV2 AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BiasAdd BiasAddV1 Elu EluGrad Erf
    Mul RealDiv Selu SeluGrad Sigmoid SigmoidGrad Softplus SoftplusGrad Softsign SoftsignGrad Sub
    Tanh TanhGrad
    """
)
_SENSITIVE = _names(
    """
    CTCLoss Cumprod Cumsum Exp Expm1 FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2
    FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 LRN LRNGrad Log Log1p LogSoftmax Pow
    Rsqrt RsqrtGrad SegmentSum Softmax SoftmaxCrossEntropyWithLogits
    SparseSoftmaxCrossEntropyWithLogits Sqrt SqrtGrad Square SquaredDifference UnsortedSegmentSum
    """
)


def precision_of(definition: Definition) -> Precision:
    """Return the precision in which an op may compute."""
    if definition.kind is Kind.CONTRACTION:
        return Precision.NARROW
    if definition.kind is Kind.REDUCTION or definition.op_type in _SENSITIVE:
        return Precision.WIDE
    either = definition.op_type in _MOVES or definition.op_type in _ROUNDS
    return Precision.EITHER if either else Precision.UNKNOWN
