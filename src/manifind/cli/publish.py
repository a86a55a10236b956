"""`manifind publish`."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from manifind.cli.terminal import out, plain_errors, progress_bars
from manifind.cluster.publishing import DESCRIPTORS
from manifind.cluster.publishing import publish as publish_index
from manifind.cluster.store import Address, store_at
from manifind.index import Index


@click.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.argument("address")
@click.option(
    "--descriptors",
    type=click.IntRange(min=0),
    default=DESCRIPTORS,
    show_default=True,
    help="Means of its regions that a photo is found by; 0 for its global descriptor alone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def publish(debug: bool, index_path: Path, address: str, descriptors: int, as_json: bool) -> None:
    """Bring the collection at ADDRESS, milvus://HOST:PORT/NAME say, to the state of INDEX."""
    with plain_errors(debug, "interrupted; the same command goes on from there."):
        where = Address.of(address)
        with Index.open(index_path) as index, progress_bars(hidden=as_json) as progress:
            store = store_at(where)
            sent = publish_index(index, store, descriptors=descriptors, progress=progress)
            store.close()
        if as_json:
            click.echo(json.dumps({"address": where.shown, **asdict(sent)}, indent=2))
            return
        out.print(
            f"generation {sent.generation}: {sent.added} photos added, {sent.changed} changed, {sent.removed} removed, "
            f"{sent.kept} as they were"
        )
        if sent.found:
            out.print(f"{sent.found} rows were there from a run that was interrupted")
        if (quicker := advice(where)) is not None and sent.generation == 1:
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
