"""`manifind publish`."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from manifind.cli.terminal import out, plain_errors, progress_bars
from manifind.index import Index
from manifind.remote.publish import DEFAULT_DESCRIPTORS
from manifind.remote.publish import publish as publish_index
from manifind.remote.store import Address, store_at


@click.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.argument("address")
@click.option(
    "--descriptors",
    type=click.IntRange(min=0),
    default=DEFAULT_DESCRIPTORS,
    show_default=True,
    help="Means of its regions that a photo is found by; 0 for its global descriptor alone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def publish(debug: bool, index_path: Path, address: str, descriptors: int, as_json: bool) -> None:
    """Publish INDEX to the collection at ADDRESS, milvus://HOST:PORT/NAME for example."""
    with plain_errors(debug, "interrupted; the same command goes on from there."):
        where = Address.parse(address)
        with Index.open(index_path) as index, progress_bars(hidden=as_json) as progress:
            store = store_at(where)
            report = publish_index(index, store, descriptors=descriptors, progress=progress)
            store.close()
        if as_json:
            click.echo(json.dumps({"address": where.shown, **asdict(report)}, indent=2))
            return
        out.print(
            f"generation {report.generation}: {report.added} photos added, {report.changed} changed, "
            f"{report.removed} removed, {report.unchanged} as they were"
        )
        if report.resumed:
            out.print(f"{report.resumed} rows were there from a run that was interrupted")
        if (quicker := advice(where)) is not None and report.generation == 1:
            out.print(quicker)
        out.print(where.shown)


def advice(address: Address) -> str | None:
    """Say how a new collection would be searched sooner; None where it is as quick as can be."""
    if address.scheme != "milvus" or "rows" in address.options:
        return None
    and_also = "&" if address.options else "?"
    return (
        "its rows lie in Milvus; in a folder that all who search see, they are fetched many times as fast: publish "
        f"under another name with {and_also}rows=/FOLDER/NAME"
    )
