"""JavaScript around a WebAssembly module. In: an Interface. Out: the text of an ES module.

`load(bytes)` makes an instance, `run({name: array})` computes; it works in browsers and in Node.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from headrace._src.compile.ahead.interface import ALIGNMENT, Interface, Port

__all__ = ["javascript_glue"]

_ARRAYS = {
    "bool": "Uint8Array", "int8": "Int8Array", "uint8": "Uint8Array", "int16": "Int16Array",
    "uint16": "Uint16Array", "int32": "Int32Array", "uint32": "Uint32Array",
    "int64": "BigInt64Array", "uint64": "BigUint64Array", "float16": "Uint16Array",
    "bfloat16": "Uint16Array", "float32": "Float32Array", "float64": "Float64Array",
}  # fmt: skip

_TEMPLATE = """\
// @ORIGIN@, compiled by Headrace.
//
//   import { load } from './@STEM@.mjs';
//   const model = await load(bytes);   // the module's bytes: an ArrayBuffer, Buffer or Response
//   const { @FIRST@ } = model.run({ … });

/** What goes in and what comes out, in order: names, types, sizes. Arrays are row-major. */
export const inputs = @INPUTS@;
export const outputs = @OUTPUTS@;

const ALIGNMENT = @ALIGNMENT@;
const PAGE = 65536;

function aligned(address) {
  return Math.ceil(address / ALIGNMENT) * ALIGNMENT;
}

function elements(port) {
  return port.shape.reduce((count, size) => count * size, 1);
}

function checked(port, given) {
  if (!(given instanceof port.array)) {
    throw new TypeError(`${port.name}: expected a ${port.array.name}`);
  }
  if (given.length !== elements(port)) {
    throw new RangeError(
      `${port.name}: expected ${elements(port)} elements [${port.shape}], got ${given.length}`);
  }
  return given;
}

/** Make an instance of the model. Instances are independent of each other. */
export async function load(source) {
  const response = typeof Response !== 'undefined' && source instanceof Response;
  const bytes = response ? await source.arrayBuffer() : source;
  const { instance } = await WebAssembly.instantiate(bytes, {});
  const { memory, __heap_base: base, @NAME@: compute, @NAME@_workspace_size: size } =
    instance.exports;

  // Inputs, outputs and the workspace stand one after the other behind the module's own data.
  let end = base.value;
  const place = (bytes) => {
    const address = aligned(end);
    end = address + bytes;
    return address;
  };
  const ports = [...inputs, ...outputs];
  const addresses = ports.map((port) => place(elements(port) * port.array.BYTES_PER_ELEMENT));
  const workspace = place(size());
  const missing = end - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE));

  const view = (index) =>
    new ports[index].array(memory.buffer, addresses[index], elements(ports[index]));

  /** Compute the outputs, as new arrays by name, from the inputs by name. */
  function run(given) {
    inputs.forEach((port, index) => view(index).set(checked(port, given[port.name])));
    const status = compute(...addresses, workspace);
    if (status === 3) throw new RangeError('an index among the inputs is outside of its range');
    if (status !== 0) throw new Error(`the model gave up with status ${status}`);
    return Object.fromEntries(
      outputs.map((port, index) => [port.name, view(inputs.length + index).slice()]));
  }
  return { inputs, outputs, run };
}
"""


def javascript_glue(interface: Interface, stem: str, origin: str) -> str:
    """The ES module that loads and runs `stem`.wasm; `origin` is the model's file."""
    values = {
        "ORIGIN": origin.replace("\n", " "),
        "STEM": stem,
        "FIRST": f"{json.dumps(interface.outputs[0].name)}: result",
        "INPUTS": _ports(interface.inputs),
        "OUTPUTS": _ports(interface.outputs),
        "ALIGNMENT": str(ALIGNMENT),
        "NAME": interface.name,
    }
    text = _TEMPLATE
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _ports(ports: Sequence[Port]) -> str:
    lines = [
        f"  {{ name: {json.dumps(p.name)}, dtype: '{p.dtype}', array: {_ARRAYS[p.dtype]}, "
        f"shape: {json.dumps(p.shape)} }},"
        for p in ports
    ]
    return "\n".join(["[", *lines, "]"])
