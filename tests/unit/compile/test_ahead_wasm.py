"""The WebAssembly linker: numbers, data that points to data, and what it refuses."""

from __future__ import annotations

import struct

import pytest

from headrace._src.compile.ahead import objects, wasm
from headrace._src.compile.ahead.targets import target_for


def compiled(text: str) -> bytes:
    llvm = objects.all_targets()
    target = target_for("wasm32")
    module = llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}')
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        features=target.features, reloc="static"
    )
    return machine.emit_object(module)


@pytest.mark.parametrize("value", [0, 1, 63, 64, 127, 128, 300, 2**31 - 1, 2**31, 2**32 - 1])
def test_numbers_round_trip(value):
    assert wasm._Reader(wasm._unsigned(value)).unsigned() == value
    assert wasm._Reader(wasm._signed(-value)).signed() == -value
    assert wasm._Reader(wasm._padded(value, signed=False)).unsigned() == value
    assert wasm._Reader(wasm._padded(value, signed=True)).signed() % 2**32 == value
    assert len(wasm._padded(value, signed=True)) == 5


def test_data_that_points_to_data():
    module = wasm.link_module(
        compiled(
            """
            @values = internal constant [3 x i32] [i32 7, i32 8, i32 9], align 64
            @third = constant ptr getelementptr (i8, ptr @values, i32 8), align 4
            define i32 @get() {
              %p = load ptr, ptr @third
              %v = load i32, ptr %p
              ret i32 %v
            }
            """
        ),
        ["get"],
    )
    values = wasm.STACK
    assert struct.pack("<III", 7, 8, 9) in module
    assert struct.pack("<I", values + 8) in module


def test_what_is_missing_is_named():
    object_file = compiled("declare float @expf(float)\ndefine float @f(float %x) {\n"
                           "  %y = call float @expf(float %x)\n  ret float %y\n}")  # fmt: skip
    with pytest.raises(ValueError, match="needs expf from elsewhere"):
        wasm.link_module(object_file, ["f"])


def test_an_export_must_exist():
    with pytest.raises(ValueError, match="doesn't define g"):
        wasm.link_module(compiled("define void @f() {\n  ret void\n}"), ["g"])


def test_addresses_of_functions_are_refused():
    with pytest.raises(ValueError, match="relocation of type 2"):
        wasm.link_module(compiled("@p = constant ptr @f\ndefine void @f() {\n  ret void\n}"), ["f"])


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\0asm\x02\0\0\0"])
def test_other_files_are_refused(data):
    with pytest.raises(ValueError, match="not a WebAssembly file"):
        wasm.WasmObject.parse(data)
