"""The public names of the objects that `core` defines: element types, shapes, devices, errors and
their codes.

They are listed here so that the defining modules need not know their public names.
"""

from __future__ import annotations

from headrace._src.core import device_names, dtypes, errors, tensor_shape
from headrace._src.core.export import export_value

_DTYPES = (
    *("bfloat16", "float16", "half", "float32", "float64", "double", "complex64", "complex128"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("qint8", "qint16", "qint32", "quint8", "quint16"),
    *("bool", "string", "resource", "variant"),
    *("DType", "as_dtype", "QUANTIZED_DTYPES"),
)
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    *("UNAUTHENTICATED",),
)
_ERRORS = (
    *("OpError", "AbortedError", "AlreadyExistsError", "CancelledError", "DataLossError"),
    *("DeadlineExceededError", "FailedPreconditionError", "InternalError", "InvalidArgumentError"),
    *("NotFoundError", "OutOfRangeError", "PermissionDeniedError", "ResourceExhaustedError"),
    *("UnauthenticatedError", "UnavailableError", "UnimplementedError", "UnknownError"),
    *("error_code_from_exception_type", "exception_type_from_error_code"),
    "raise_exception_on_not_ok_status",
)

for _name in _DTYPES:
    export_value(dtypes.__name__, _name, _name, f"dtypes.{_name}")
for _name in (*_CODES, *_ERRORS):
    export_value(errors.__name__, _name, f"errors.{_name}")
for _name in ("Dimension", "TensorShape"):
    export_value(tensor_shape.__name__, _name, _name)
for _name in ("dimension_at_index", "dimension_value"):
    export_value(tensor_shape.__name__, _name, _name, f"compat.{_name}")
export_value(errors.__name__, "OpError", "OpError")
# TensorFlow 1.15's own name for its interface: all of it.
export_value("headrace", "", "compat.v1")
# The modules of TensorFlow's own source tree, which programs import from.
export_value("headrace.python", "", "python")
export_value(device_names.__name__, "DeviceSpec", "DeviceSpec")
