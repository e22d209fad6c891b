"""Exemptions from the laws: by the op's exact name, each with a reason. `test_exemptions` counts
them and fails when an entry is missing or unnecessary.
"""

import numpy as np


def _named(reason, names):
    return dict.fromkeys(names.split(), reason)


def is_singular(op):
    matrices = np.asarray(op.inputs[0].op._attrs["value"], np.complex128)
    return not np.linalg.det(matrices).all()


def is_complex(op):
    return any(t.dtype.base_dtype.is_complex for t in (*op.inputs, *op.outputs))


# Ops without samples: of them the laws check the schema, the effect and what can be said without
# running them; the programs that are named here run them.
NO_SAMPLES = {
    **_named(
        "it may wait: tests/oracle/sequences_*.py",
        "AccumulatorApplyGradient AccumulatorNumAccumulated AccumulatorNumDropped "
        "AccumulatorSetGlobalStep AccumulatorTakeGradient ResourceAccumulatorApplyGradient "
        "ResourceAccumulatorNumAccumulated ResourceAccumulatorNumDropped "
        "ResourceAccumulatorSetGlobalStep ResourceAccumulatorTakeGradient "
        "SparseAccumulatorApplyGradient SparseAccumulatorTakeGradient",
    ),
    **_named(
        "it waits for others: tests/unit/horovod, tests/unit/ops/test_collectives.py",
        "CollectiveBcastRecv CollectiveBcastSend CollectiveGather CollectiveReduce "
        "HorovodAllgather HorovodAllreduce HorovodBroadcast HorovodGroupedAllreduce HorovodRank "
        "HorovodSize",
    ),
    **_named(
        "it may wait: tests/oracle/sequences_*.py",
        "BarrierClose BarrierIncompleteSize BarrierInsertMany BarrierReadySize BarrierTakeMany",
    ),
    **_named(
        "it may wait: tests/oracle/sequences_*.py",
        "QueueClose QueueCloseV2 QueueDequeue QueueDequeueMany QueueDequeueManyV2 "
        "QueueDequeueUpTo QueueDequeueUpToV2 QueueDequeueV2 QueueEnqueue QueueEnqueueMany "
        "QueueEnqueueManyV2 QueueEnqueueV2 QueueIsClosed QueueIsClosedV2 QueueSize "
        "QueueSizeV2",
    ),
    **_named(
        "it may wait: tests/oracle/sequences_*.py",
        "MapClear MapIncompleteSize MapPeek MapSize MapStage MapUnstage MapUnstageNoKey "
        "OrderedMapClear OrderedMapIncompleteSize OrderedMapPeek OrderedMapSize "
        "OrderedMapStage OrderedMapUnstage OrderedMapUnstageNoKey Stage StageClear "
        "StagePeek StageSize Unstage",
    ),
    **_named(
        "it may wait: tests/unit/ops/test_readers.py",
        "ReaderNumRecordsProduced ReaderNumRecordsProducedV2 ReaderNumWorkUnitsCompleted "
        "ReaderNumWorkUnitsCompletedV2 ReaderRead ReaderReadUpTo ReaderReadUpToV2 "
        "ReaderReadV2 ReaderReset ReaderResetV2 ReaderRestoreState ReaderRestoreStateV2 "
        "ReaderSerializeState ReaderSerializeStateV2",
    ),
    **_named(
        "what is saved and restored is in files: tests/unit/ops/test_checkpoints.py",
        "MergeV2Checkpoints Restore RestoreSlice RestoreV2 Save SaveSlices SaveV2",
    ),
    **_named(
        "it gives the time",
        "Timestamp",
    ),
    **_named(
        "it steers: tests/unit/gradients/test_control_flow.py, tests/property",
        "Enter Exit Merge NextIteration RefEnter RefExit RefMerge RefNextIteration "
        "RefSwitch Switch",
    ),
    **_named(
        "its input is a mutex: tests/unit/ops/test_critical_section.py",
        "ConsumeMutexLock MutexLock",
    ),
    **_named(
        "it calls functions of a graph's library: tests/unit/gradients/test_functions.py",
        "Case For If PartitionedCall RemoteCall StatefulPartitionedCall StatelessIf "
        "StatelessWhile SymbolicGradient While",
    ),
    **_named(
        "its handle lives in one step: tests/unit/ops/test_tensor_lists.py",
        "EmptyTensorList TensorListConcat TensorListConcatLists TensorListConcatV2 "
        "TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem "
        "TensorListLength TensorListPopBack TensorListPushBack TensorListPushBackBatch "
        "TensorListReserve TensorListResize TensorListScatter "
        "TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem "
        "TensorListSplit TensorListStack",
    ),
    **_named(
        "its handle lives in one step: tests/unit/ops/test_tensor_lists.py",
        "OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone",
    ),
    **_named(
        "its handle lives in one step: tests/unit/ops/test_tensor_array.py",
        "TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3 "
        "TensorArrayGradWithShape TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 "
        "TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3",
    ),
    **_named(
        "its handle lives in one step: tests/unit/ops/test_old_tensor_arrays.py",
        "TensorArray TensorArrayClose TensorArrayCloseV2 TensorArrayConcat "
        "TensorArrayConcatV2 TensorArrayGather TensorArrayGatherV2 TensorArrayGrad "
        "TensorArrayGradV2 TensorArrayPack TensorArrayRead TensorArrayReadV2 "
        "TensorArrayScatter TensorArrayScatterV2 TensorArraySize TensorArraySizeV2 "
        "TensorArraySplit TensorArraySplitV2 TensorArrayUnpack TensorArrayV2 "
        "TensorArrayWrite TensorArrayWriteV2",
    ),
    **_named(
        "its handle lives in one step: tests/unit/ops/test_tensor_array.py",
        "Stack StackClose StackCloseV2 StackPop StackPopV2 StackPush StackPushV2 StackV2",
    ),
    **_named(
        "its variant isn't an array: tests/unit/ops/test_ragged_ops.py",
        "RaggedTensorFromVariant RaggedTensorToVariant",
    ),
    **_named(
        "it calls a Python function: tests/unit/ops/test_python_functions.py",
        "EagerPyFunc PyFunc PyFuncStateless",
    ),
    **_named(
        "its tensors outlive a step: tests/unit/session/test_session_handles.py",
        "DeleteSessionTensor GetSessionHandle GetSessionHandleV2 GetSessionTensor",
    ),
    **_named(
        "its value is fed",
        "Placeholder PlaceholderV2",
    ),
    **_named(
        "it may wait: tests/oracle/sequences_inputs.py",
        "AddManySparseToTensorsMap AddSparseToTensorsMap TakeManySparseFromTensorsMap",
    ),
    **_named(
        "a table's content isn't in its handle: tests/unit/ops/test_tables.py",
        "HashTable HashTableV2 InitializeTable InitializeTableFromTextFile "
        "InitializeTableFromTextFileV2 InitializeTableV2 LookupTableExport "
        "LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableImport "
        "LookupTableImportV2 LookupTableInsert LookupTableInsertV2 LookupTableRemoveV2 "
        "LookupTableSize LookupTableSizeV2 MutableDenseHashTableV2 MutableHashTable "
        "MutableHashTableOfTensors MutableHashTableOfTensorsV2 MutableHashTableV2",
    ),
}

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
    **_named(
        "it waits for others: tests/unit/horovod",
        "HorovodAllgather HorovodAllreduce HorovodBroadcast HorovodGroupedAllreduce",
    ),
    **_named("its gradient is an error, which is what it's for", "PreventGradient"),
    **_named(
        "the reserved mean and variance count as functions of x, as in TensorFlow, so that they "
        "can't be perturbed alone: tests/oracle/cases_nn_norm.py",
        "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3",
    ),
    **_named(
        "its gradient is that of a sample at a constant probability, not that of the rejections "
        "which draw it: tests/unit/ops/test_special.py",
        "RandomGamma",
    ),
    **_named(
        "it rounds, and its gradient is that of numbers which weren't: "
        "tests/oracle/cases_quantization.py",
        "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel "
        "QuantizeAndDequantizeV2 QuantizeAndDequantizeV3",
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
    "MatrixSquareRoot": (is_singular, "a root has no derivative where it isn't invertible"),
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

# Ops that aren't given bad input, besides those without samples.
NO_BAD_INPUT = {
    **NO_SAMPLES,
    **_named("what it writes stays on the disk", "WriteFile"),
}

# Inputs that TensorFlow 1.15.5 refuses and Headrace accepts: (which inputs of the first sample,
# why).
ACCEPTED = {}

# Laws by name, with what each leaves out.
ALL = {
    "samples": NO_SAMPLES,
    "gradient": GRADIENT,
    "gradient of some uses": GRADIENT_OF_SOME,
    "bad input": {o: reason for o, reason in NO_BAD_INPUT.items() if o not in NO_SAMPLES},
    "what TensorFlow refuses": ACCEPTED,
}


def count() -> int:
    """How many exemptions there are."""
    return sum(map(len, ALL.values()))
