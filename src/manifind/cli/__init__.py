"""The commands: one file each, thin, no logic of their own. A command's file is imported when it is called."""

import difflib
import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from manifind.version import VERSION

COMMANDS = {
    "index": "Build an index of the folder PHOTOS, or update it.",
    "search": "Rank the photos of INDEX by what they have of IMAGE, or of the box in it.",
    "verify": "Repeat the search of REPORT, a folder that `search --report` wrote, on INDEX; say what differs.",
    "explain": "Show the chain of photos that leads from IMAGE to RESULT, a photo of INDEX.",
    "repeats": "Find objects that occur in several photos of INDEX, without a query.",
    "sets": "Keep, judge and export sets of results from INDEX.",
    "serve": "Serve INDEX as a web page and an HTTP API, to this machine only by default.",
    "mcp": "Let an agent search INDEX: the Model Context Protocol on standard input and output.",
    "info": "Show counts, parameters and health of INDEX.",
    "check": "Verify every checksum and invariant of INDEX, and name the remedies.",
    "evaluate": "Evaluate methods on COLLECTION: an index, a folder of photos, or descriptors.",
    "export": "Write the regions and vectors of INDEX to FILE, a Parquet table.",
    "publish": "Publish INDEX to the collection at ADDRESS, milvus://HOST:PORT/NAME for example.",
    "whiten": "Learn a whitening from pairs of photos of the same object.",
    "demo": "Plant objects in photos, find them by five methods, and write a report.",
}
"""Each is a module of this package that defines a command of its name, and how that command's help begins."""


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage meanwhile: modules stay, and looking through them takes a seventh of the time of imports."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
    gc.freeze()


class Commands(click.Group):
    """The commands of `COMMANDS`, in that order, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        name = f"manifind.cli.{cmd_name}"
        if name not in sys.modules:
            with without_collections():
                importlib.import_module(name)
        command: click.Command = getattr(sys.modules[name], cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant, or say which one is named nearly so."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


BEGIN = """\b
Begin with a folder of photos:
  manifind serve photos/      a page to draw a box on; the index is made meanwhile
or without the page:
  manifind index photos/      makes photos.manifind
  manifind search photos.manifind shot.jpg --box 40,60,220,310
"""
"""What stands below the list of commands."""


@click.group(
    cls=Commands, epilog=BEGIN, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name="manifind")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads to use; all cores by default.")
@click.pass_context
def main(context: click.Context, debug: bool, threads: int | None) -> None:
    """Find every photo that contains this object, however small."""
    context.obj = debug
    if threads is not None:
        from manifind import kernels

        kernels.set_threads(threads)
