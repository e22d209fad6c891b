"""`headrace compile`: a frozen graph becomes an object file or a WebAssembly module, with a header
for C and, for the latter, JavaScript. Whatever runs it needs neither Python nor a library.
"""

from __future__ import annotations

from pathlib import Path

import click

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
    help="An output; by default, whatever the graph computes and doesn't use.",
)
@click.option("--batch", type=int, help="The first size of inputs where the graph leaves it open.")
@click.option("--name", help="The function's name; by default, that of the file.")
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
    from headrace.compile.ahead import c_identifier, target_for
    from headrace.compile.ahead.model import read_model
    from headrace.core import proto
    from headrace.graph.graph_io import read_message
    from headrace.pipeline.ahead import compile_model

    try:
        found = read_model(read_message(model, proto.GraphDef), inputs, outputs, batch)
        artifact = compile_model(
            found,
            target_for(architecture, cpu),
            name=name or c_identifier(out.stem),
            stem=out.stem,
            origin=model.name,
        )
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    files: dict[Path, bytes] = {out.with_suffix(".h"): artifact.header.encode()}
    if artifact.module is not None and artifact.glue is not None and out.suffix != ".o":
        files[out.with_suffix(".wasm")] = artifact.module
        files[out.with_suffix(".mjs")] = artifact.glue.encode()
    else:
        files[out.with_suffix(".o")] = artifact.object
    for path, data in files.items():
        path.write_bytes(data)
        click.echo(f"{path}: {len(data)} bytes")
