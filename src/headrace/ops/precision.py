"""Which ops may compute in 16 bits where a step is to be of mixed precision. In: a definition. Out:
a Precision.

Contractions profit and lose nothing that matters: their sums are taken in float32 anyway. Between
two of them, what rounds no worse than they do follows. What adds many numbers up, or has values far
from 1, stays in float32. The lists are about those of TensorFlow's own rewriter.
"""

from __future__ import annotations

import enum

from headrace.graph.definition import Definition, Kind

__all__ = ["Precision", "precision_of"]


class Precision(enum.Enum):
    """NARROW: computes in 16 bits. EITHER: does so between two NARROW ops. WIDE: doesn't, nor does
    what lies between two of these. UNKNOWN: keeps its type, and says nothing of its neighbours.
    """

    NARROW = enum.auto()
    EITHER = enum.auto()
    WIDE = enum.auto()
    UNKNOWN = enum.auto()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# They move elements, or choose among them: 16-bit ones go in, the same come out.
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
    """What an op says of 16 bits."""
    if definition.kind is Kind.CONTRACTION:
        return Precision.NARROW
    if definition.kind is Kind.REDUCTION or definition.op_type in _SENSITIVE:
        return Precision.WIDE
    either = definition.op_type in _MOVES or definition.op_type in _ROUNDS
    return Precision.EITHER if either else Precision.UNKNOWN
