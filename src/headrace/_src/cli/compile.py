"""`headrace compile`: compile a frozen graph to an object file or a WebAssembly module, with a C
header and, for the latter, JavaScript. The result needs neither Python nor a library to run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace._src.compile.ahead import Artifact

__all__ = ["command"]


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--target",
    "architecture",
    required=True,
    type=click.Choice(["x86_64", "aarch64", "wasm32"]),
    help="What to compile for.",
)
@click.option("--cpu", help="The processor (x86_64: x86-64-v3, the default, or -v2, -v4).")
@click.option(
    "-o",
    "out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write: OUT.o, or OUT.wasm. OUT.h and OUT.mjs are written beside it.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME[:SIZE,…]",
    help="An input and its sizes; the placeholders by default.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="NAME",
    help="An output; by default, every value that the graph computes and doesn't use.",
)
@click.option("--batch", type=int, help="The first size of inputs where it is unknown.")
@click.option("--name", help="The function's name; by default, the file's name.")
def command(
    model: Path,
    architecture: str,
    cpu: str | None,
    out: Path,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    batch: int | None,
    name: str | None,
) -> None:
    """Compile a frozen graph (a GraphDef, binary or text) for use without Python.

    Freeze variables with tf.graph_util.convert_variables_to_constants first.
    """
    from headrace._src.compile.ahead import c_identifier, target_for
    from headrace._src.compile.ahead.model import read_model
    from headrace._src.compile.native import machine_code
    from headrace._src.core import proto
    from headrace._src.graph.graph_io import read_message
    from headrace._src.pipeline.ahead import compile_model

    reason = machine_code.why_not()
    if reason is not None:
        raise click.ClickException(reason)
    base = out.with_suffix("") if out.suffix in (".o", ".wasm") else out
    try:
        found = read_model(read_message(model, proto.GraphDef), inputs, outputs, batch)
        artifact = compile_model(
            found,
            target_for(architecture, cpu),
            name=name or c_identifier(base.name),
            stem=base.name,
            origin=model.name,
        )
        for path, data in _files(artifact, base, out.suffix).items():
            path.write_bytes(data)
            click.echo(f"{path}: {len(data)} bytes")
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _files(artifact: Artifact, base: Path, suffix: str) -> dict[Path, bytes]:
    """Return the files to write: a WebAssembly module if there is one and `suffix` isn't .o, else
    an object.
    """

    def beside(ending: str) -> Path:
        return base.with_name(base.name + ending)

    files = {beside(".h"): artifact.header.encode()}
    if artifact.module is None or artifact.glue is None or suffix == ".o":
        if suffix == ".wasm":
            raise ValueError("this target makes an object file: name it with .o")
        return {beside(".o"): artifact.object, **files}
    return {beside(".wasm"): artifact.module, beside(".mjs"): artifact.glue.encode(), **files}
