"""`headrace convert`: convert a checkpoint to another format."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("destination", metavar="TO")
def command(source: str, destination: str) -> None:
    """Write the tensors of a checkpoint in another format.

    FROM is the prefix of a checkpoint (V2 or V1), a directory (its latest one), or a safetensors
    file. TO is a safetensors file if its name ends in .safetensors, else the prefix of a V2
    checkpoint.
    """
    from rich.console import Console
    from rich.progress import Progress

    from headrace._src.checkpoint.convert_formats import convert_checkpoint, size_of
    from headrace._src.core.errors import OpError
    from headrace._src.train.saving.checkpoint_reader import checkpoint_in

    try:
        path = checkpoint_in(source)
        with Progress(console=Console(stderr=True), transient=True) as bars:
            bar = bars.add_task(destination, total=size_of(path))
            convert_checkpoint(path, destination, lambda count: bars.advance(bar, count))
    except OpError as error:
        raise click.ClickException(error.message) from error
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{destination}: {size_of(destination):,} bytes of tensors")
