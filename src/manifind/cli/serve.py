"""`manifind serve`."""

import importlib
from pathlib import Path

import click

from manifind.cli.parameters import DEVICE, TIME_LIMIT, index_location
from manifind.cli.terminal import out, plain_errors
from manifind.errors import InvalidInputError
from manifind.index import Index
from manifind.index.storage.layout import SUFFIX, has_index_files, index_of, is_folder_of_photos, is_index


@click.command()
@click.argument("index_path", metavar="[INDEX]", type=index_location, required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; elsewhere a token is demanded.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes a free one.")
@click.option("--token", envvar="MANIFIND_TOKEN", help="What clients must show; also MANIFIND_TOKEN.")
@click.option("--open-to-all", is_flag=True, help="Listen where others can reach it, without a token.")
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser.")
@click.option("--follow-links", is_flag=True, help="Serve photos that are links out of the collection's folder.")
@click.option("--cors", "origins", multiple=True, metavar="ORIGIN", help="Another site whose pages may use the API.")
@click.option("--watch", is_flag=True, help="Bring the index up to date by itself when photos come or go.")
@click.option("--mcp", is_flag=True, help="Answer agents at /mcp, by the Model Context Protocol.")
@click.option("--time-limit", type=TIME_LIMIT, default=30.0, show_default=True, help="Seconds a search.")
@click.option(
    "--waiting", type=click.IntRange(min=1), default=256, show_default=True, help="Searches at once, at most."
)
@DEVICE
@click.pass_obj
def serve(
    debug: bool,
    index_path: Path | str | None,
    host: str,
    port: int,
    token: str | None,
    open_to_all: bool,
    in_browser: bool,
    follow_links: bool,
    origins: tuple[str, ...],
    watch: bool,
    mcp: bool,
    time_limit: float,
    waiting: int,
    device: str,
) -> None:
    """Serve INDEX as a web page and an HTTP API, to this machine only by default.

    INDEX may be a folder of photos: the page shows its index grow, and searches what is there so far. Without INDEX,
    the page asks for a folder.
    """
    with plain_errors(debug):
        from manifind import serve as service

        def started(address: str) -> None:
            out.print(f"{address}  (Ctrl-C ends it)")
            if in_browser:
                click.launch(address)

        if mcp:
            importlib.import_module("manifind.serve.mcp_server")  # an error names the extra that is missing

        may_write = service.is_loopback(host) or bool(token)
        if watch and not may_write:
            raise InvalidInputError("--watch changes the index; give a --token, or leave --host out.")
        settings = service.Settings(
            token=token or None,
            follow_links=follow_links,
            origins=origins,
            time_limit=time_limit,
            waiting=waiting,
            tell_paths=service.is_loopback(host) and not origins,
            keep_sets=may_write,
            updates=may_write,
            watch=watch,
            mcp=mcp,
        )
        service.serve(
            what_to_serve(index_path, device),
            host=host,
            port=port,
            open_to_all=open_to_all,
            settings=settings,
            started=started,
            device=device,
        )


def what_to_serve(given: Path | str | None, device: str) -> Index | Path | None:
    """Return the index that is meant; a folder of photos whose index is to be made; None where the page asks."""
    if isinstance(given, Path):
        if not given.exists() and given.suffix != SUFFIX:
            raise InvalidInputError(f"{given} does not exist; give the folder of the photos, or their index.")
        if given.is_dir() and is_folder_of_photos(given):
            folder, given = given, index_of(given)
            if not is_index(given):
                return folder
        elif given.is_dir() and not has_index_files(given) and not is_index(index_of(given)):
            raise InvalidInputError(f"{given} has no photos; give a folder with at least one, or an index.")
    return None if given is None else Index.open(given, device=device)
