"""`manifind mcp`."""

from pathlib import Path

import click

from manifind.cli.parameters import DEVICE, index_location
from manifind.cli.terminal import plain_errors
from manifind.index import Index


@click.command()
@click.argument("index_path", metavar="INDEX", type=index_location)
@click.option(
    "--files",
    "folders",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    metavar="FOLDER",
    help="Let the agent search with photos below this folder too; may be repeated.",
)
@DEVICE
@click.pass_obj
def mcp(debug: bool, index_path: Path | str, folders: tuple[Path, ...], device: str) -> None:
    """Let an agent search INDEX: the Model Context Protocol on standard input and output.

    The tools search by a photo and a box, show photos and contact sheets, page through results, say why, and list
    sets. None changes anything. `manifind serve --mcp` answers agents over HTTP.
    """
    with plain_errors(debug, interrupted="ended."):
        from manifind.serve.mcp_server import serve_stdio

        serve_stdio(Index.open(index_path, device=device), folders)
