"""The inferred shapes of each op's outputs, for inputs known to any degree, are TensorFlow
1.15.5's.
"""

import pytest

from tests.oracle import shape_rules

# Ops of which another shape is inferred, and why.
OTHERWISE = {
    "ExtractVolumePatches": "TensorFlow forgets a dimension where a size isn't known",
    "FractionalAvgPool": "TensorFlow forgets the last cut of rows and columns",
    "FractionalMaxPool": "TensorFlow forgets the last cut of rows and columns",
    "FusedBatchNormGrad": "TensorFlow calls its last outputs empty vectors, which are scalars",
    "FusedBatchNormGradV2": "TensorFlow calls its last outputs empty vectors, which are scalars",
    "FusedBatchNormGradV3": "TensorFlow calls its last outputs empty vectors, which are scalars",
    "MatrixDiagPartV2": "TensorFlow calculates with -1 for an unknown size",
    "MatrixDiagV2": "TensorFlow takes an unknown number of rows for the default, -1",
    "MatrixSetDiagV2": "TensorFlow refuses unknown sizes for a band of diagonals",
    "ParallelConcat": "TensorFlow refuses shapes that aren't known in full",
    "PrintV2": "TensorFlow refuses a string whose rank isn't known",
    "SplitV": "TensorFlow takes an unknown axis for the last one",
    "Substr": "TensorFlow refuses positions and lengths of unknown sizes",
    "UniqueV2": "TensorFlow takes any input for a vector",
    "UniqueWithCountsV2": "TensorFlow takes any input for a vector",
}
RECORDED = shape_rules.recorded()


@pytest.mark.parametrize("op_type", [t for t in shape_rules.op_types() if t not in OTHERWISE])
def test_infers_what_tensorflow_infers(op_type):
    differing = []
    for label, data in shape_rules.variants(op_type):
        expected, found = RECORDED.get(shape_rules.key(data)), None
        if expected is not None:
            found = shape_rules.inferred(data)
        if found != expected:
            differing.append(f"{label}: {found}, not {expected}")
    assert differing == []
