"""The commands: one file each, thin, no logic of their own. A command's file is imported when it is called."""

import difflib
import importlib
from pathlib import Path

import click

from manifind.version import VERSION

COMMANDS = {
    "index": "Make an index of the folder PHOTOS, or bring it up to date.",
    "search": "Rank the photos of INDEX by what they have of IMAGE, or of the box in it.",
    "explain": "Show the chain of photos that leads from IMAGE to RESULT, a photo of INDEX.",
    "repeats": "Find what occurs in several photos of INDEX, without any query.",
    "sets": "Keep, judge and export sets of photos that were found in INDEX.",
    "serve": "Serve INDEX as a web page and an HTTP API, to this machine only unless told otherwise.",
    "info": "Show what is in INDEX and how healthy its graph is.",
    "check": "Verify every checksum of INDEX and everything that must hold of it; say what would repair what is wrong.",
    "learn": "Teach the descriptions of INDEX by its own photos that show the same thing, where that helps.",
    "evaluate": "Measure methods on COLLECTION: an index, a folder of photos, or descriptors.",
    "publish": "Bring the collection at ADDRESS, milvus://HOST:PORT/NAME say, to the state of INDEX.",
    "whiten": "Learn a whitening from photos that show the same thing.",
    "demo": "Plant objects in photos, find them in four ways, and write a page that shows how.",
}
"""Each is a module of this package that defines a command of its name, and how that command's help begins."""


class Commands(click.Group):
    """The commands of `COMMANDS`, in that order, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"manifind.cli.{cmd_name}"), cmd_name)
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


def _write_manual(context: click.Context, _: click.Parameter, folder: Path | None) -> None:
    """Write the manual pages and leave, where they are asked for."""
    if folder is None or context.resilient_parsing:
        return
    from manifind.cli.manual import write_manual
    from manifind.cli.terminal import err, plain_errors

    with plain_errors(bool(context.params.get("debug"))):
        written = write_manual(folder)
    err.print(f"wrote {len(written)} pages; man -l {written[0]} shows the first.")
    context.exit()


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
@click.option(
    "--manual",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    is_eager=True,
    expose_value=False,
    callback=_write_manual,
    help="Write manual pages for man into FOLDER and exit.",
)
@click.pass_context
def main(context: click.Context, debug: bool, threads: int | None) -> None:
    """Find every photo that contains this object, however small."""
    context.obj = debug
    if threads is not None:
        from manifind import kernels

        kernels.set_threads(threads)
