"""`manifind info`."""

import json
import platform
from pathlib import Path
from typing import Any

import click

from manifind import kernels
from manifind.cli.parameters import index_location
from manifind.cli.terminal import out, plain_errors, show_skipped
from manifind.errors import InvalidInputError
from manifind.index import Index
from manifind.index.build.estimate import size
from manifind.reports.text import visible
from manifind.version import VERSION


@click.command()
@click.argument("index_path", metavar="[INDEX]", type=index_location, required=False)
@click.option("--system", "of_system", is_flag=True, help="Show what manifind itself runs on instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def info(debug: bool, index_path: Path | str | None, of_system: bool, as_json: bool) -> None:
    """Show counts, parameters and health of INDEX."""
    with plain_errors(debug):
        if of_system:
            show_system(as_json)
            return
        if index_path is None:
            raise InvalidInputError("INDEX is missing; give the index to show, or --system for what manifind runs on.")
        facts = Index.open(index_path).info()
        if as_json:
            click.echo(json.dumps(facts, indent=2))
        else:
            show_info(facts)


def show_system(as_json: bool) -> None:
    """Print what manifind runs on."""
    facts = {"manifind": VERSION, "python": platform.python_version(), **kernels.machine()}
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        out.print(f"{name.replace('_', ' '):<18}", "none" if shown in (None, "") else shown)


def show_info(facts: dict[str, Any]) -> None:
    """Print what is in an index and how it does."""
    parts = ", ".join(f"{name} {size(count)}" for name, count in facts["bytes_by_part"].items())
    rows = {
        "index": facts["path"],
        "photos in": facts["photos_folder"] + ("" if facts["photos_folder_is_there"] else " (not there now)"),
        "generation": f"{facts['generation']}, made by {facts['made_by']}",
        "photos": f"{facts['photos']:,}",
        "regions": f"{facts['regions']:,}"
        + (f", {facts['regions_per_image']} means a photo" if facts["regions_per_image"] else ""),
        "edges": f"{facts['edges']:,}",
        "on disk": f"{size(facts['bytes'])}: {parts}",
        "backbone": f"{facts['extractor']['name']} ({facts['extractor']['sha256'][:12]})",
        "config": facts["config_hash"],
        "parameters": ", ".join(f"{name} {value}" for name, value in facts["manifold"].items()),
    }
    for name, value in rows.items():
        out.print(f"{name:<11} {value}")
    for sentence in (
        visible(facts["files"]["words"]),
        facts["graph"]["words"],
        *facts["health"]["words"],
        facts["whitening"]["words"],
        facts["chosen"]["words"],
        facts["local_features"]["words"],
    ):
        out.print(f"- {sentence}")
    if not facts["photos_folder_is_there"]:
        out.print(
            "- The folder of the photos is not there: searches still rank, but show no photo. Is its disk connected? "
            "If the folder was moved, manifind index NEW_FOLDER -o INDEX follows it."
        )
    show_skipped(facts["skipped"])
