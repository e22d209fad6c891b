"""Run compiled models as their users do: from C, under an emulator, in Node; where those exist."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from headrace._src.compile.ahead import Artifact
from headrace._src.compile.ahead.interface import C_TYPES
from headrace._src.devices.target import Target, host

Arrays = Mapping[str, np.ndarray]


def runs_here(architecture: str, target: Target) -> bool:
    """Whether this machine has what it takes to run code for the target."""
    if architecture == "wasm32":
        return shutil.which("node") is not None
    if sys.platform != "linux":
        return False
    if architecture == platform.machine():
        return shutil.which("cc") is not None and target.vector_bytes <= host().vector_bytes
    return _cross(architecture) is not None


def _cross(architecture: str) -> tuple[str, str] | None:
    compiler, emulator = f"{architecture}-linux-gnu-gcc", f"qemu-{architecture}"
    return (compiler, emulator) if shutil.which(compiler) and shutil.which(emulator) else None


def run(artifact: Artifact, architecture: str, arrays: Arrays, folder: Path) -> list[np.ndarray]:
    """The outputs that the compiled model computes."""
    done = _run(artifact, architecture, arrays, folder)
    assert done.returncode == 0, done.stderr.decode()
    outputs, at = [], 0
    for port in artifact.interface.outputs:
        part = np.frombuffer(done.stdout, port.dtype, port.elements, at)
        outputs.append(part.reshape(port.shape))
        at += port.size
    assert at == len(done.stdout)
    return outputs


def status(artifact: Artifact, architecture: str, arrays: Arrays, folder: Path) -> int:
    """What the compiled model returns."""
    code = _run(artifact, architecture, arrays, folder).returncode
    assert code == 0 or code > _STATUS
    return code and code - _STATUS


_STATUS = 100  # a status is told as an exit code greater than this


def _run(
    artifact: Artifact, architecture: str, arrays: Arrays, folder: Path
) -> subprocess.CompletedProcess[bytes]:
    given = b"".join(arrays[p.name].tobytes() for p in artifact.interface.inputs)
    if artifact.module is not None:
        command = _node_program(artifact, folder)
    else:
        command = _c_program(artifact, architecture, folder)
    return subprocess.run(command, input=given, capture_output=True, timeout=240)


def _c_program(artifact: Artifact, architecture: str, folder: Path) -> list[str]:
    interface = artifact.interface
    name, macro = interface.name, interface.name.upper()
    arrays, reads, writes = [], [], []
    for i, (port, identifier) in enumerate(
        zip(interface.ports, interface.identifiers, strict=True)
    ):
        count = f"{macro}_{identifier.upper()}_ELEMENTS"
        # One element further than it would be aligned: models ask for no more than elements do.
        arrays.append(
            f"_Alignas(64) static {C_TYPES[port.dtype]} a{i}_[{count} + 1], *a{i} = a{i}_ + 1;"
        )
        action = "fread" if i < len(interface.inputs) else "fwrite"
        stream = "stdin" if action == "fread" else "stdout"
        done = f"if ({action}(a{i}, sizeof *a{i}, {count}, {stream}) != {count}) return 9;"
        (reads if action == "fread" else writes).append(done)
    pointers = ", ".join(f"a{i}" for i in range(len(interface.ports)))
    lines = [
        "#include <stdio.h>",
        f'#include "{name}.h"',
        *arrays,
        f"_Alignas({macro}_WORKSPACE_ALIGNMENT) static char w[{macro}_WORKSPACE_SIZE + 1];",
        "int main(void) {",
        f"  if ({name}_workspace_size() != {macro}_WORKSPACE_SIZE) return 3;",
        f"  if ({name}({pointers}, w + 1) != 2) return 4;",
        f"  if ({name}({pointers}, NULL) != 1) return 5;",
        *reads,
        "  for (int i = 0; i < 2; i++) {",
        f"    int status = {name}({pointers}, w);",
        f"    if (status) return {_STATUS} + status;",
        "  }",
        *writes,
        "  return 0;",
        "}",
        "",
    ]
    (folder / "main.c").write_text("\n".join(lines))
    (folder / f"{name}.h").write_text(artifact.header)
    (folder / f"{name}.o").write_bytes(artifact.object)
    compiler, emulator = "cc", []
    if architecture != platform.machine():
        found = _cross(architecture)
        assert found is not None
        compiler, emulator = f"{found[0]} -static", [found[1]]  # no libraries to load there
    binary = str(folder / "main")
    command = [*compiler.split(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(
        [*command, str(folder / "main.c"), str(folder / f"{name}.o"), "-o", binary], check=True
    )
    return [*emulator, binary]


_NODE = """\
import fs from 'node:fs';
import {{ load, inputs, outputs }} from './{name}.mjs';
const model = await load(fs.readFileSync(new URL('./{name}.wasm', import.meta.url)));
const bytes = fs.readFileSync(0);
let at = 0;
const given = {{}};
for (const port of inputs) {{
  const count = port.shape.reduce((a, b) => a * b, 1);
  const size = count * port.array.BYTES_PER_ELEMENT;
  given[port.name] = new port.array(bytes.buffer.slice(bytes.byteOffset + at).slice(0, size));
  at += size;
}}
let results;
try {{
  for (let i = 0; i < 2; i++) results = model.run(given);
}} catch (error) {{
  process.exit(error instanceof RangeError ? 103 : 1);
}}
process.stdout.write(Buffer.concat(outputs.map((port) => Buffer.from(results[port.name].buffer))));
"""


def _node_program(artifact: Artifact, folder: Path) -> Sequence[str]:
    name = artifact.interface.name
    assert artifact.module is not None and artifact.glue is not None
    (folder / f"{name}.wasm").write_bytes(artifact.module)
    (folder / f"{name}.mjs").write_text(artifact.glue)
    (folder / "main.mjs").write_text(_NODE.format(name=name))
    return ["node", str(folder / "main.mjs")]
