"""`manifind index`."""

import json
from pathlib import Path
from typing import Any

import click

from manifind.cli.extraction_options import WHITEN, extraction_options, settings_of
from manifind.cli.parameters import BYTES, DEVICE, FRAME_INTERVAL
from manifind.cli.terminal import devices_named, err, out, plain_errors, progress_bars, show_skipped
from manifind.errors import InvalidInputError, shell_quote
from manifind.graph import AUTO, GRAPHS
from manifind.index import Changes, Index
from manifind.index.config import PRESETS
from manifind.index.storage.layout import index_of, is_index
from manifind.kernels import AUTO as AUTO_DEVICE
from manifind.kernels.cuda import gpu_here
from manifind.reports.text import visible


@click.command()
@click.argument("photos", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The index; PHOTOS.manifind by default.")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="All choices by one name; other options override it.")
@extraction_options
@WHITEN
@click.option("-k", type=click.IntRange(min=1), help="Neighbours of each region in the graph; by the number of photos.")
@click.option("--graph", type=click.Choice([AUTO, *GRAPHS]), help="How to find neighbours; auto by default.")
@click.option(
    "--regions-per-image",
    type=click.IntRange(min=1),
    help="Keep N mixture means in place of a photo's regions, 5 for example.",
)
@click.option(
    "--local-features/--no-local-features",
    default=None,
    help="Keep local features, by which results are verified (the default where they can be made); adds them to an "
    "index that has none.",
)
@click.option(
    "--frames", type=FRAME_INTERVAL, metavar="SECONDS", help="Index videos too, a frame every SECONDS, 2 for example."
)
@click.option("--memory", type=BYTES, help="Memory that the build may take.")
@DEVICE
@click.option("--scheduler", metavar="ADDRESS", help="Build on Dask's workers, tcp://host:8786 for example.")
@click.option(
    "--shards",
    metavar="FOLDER",
    help="With --scheduler: what workers write goes through this folder, or object store (s3://bucket/folder), and not "
    "through the index's own.",
)
@click.option("--retrain-whitening", is_flag=True, help="Learn the whitening again, and extract all photos with it.")
@click.option("--repair", is_flag=True, help="Rebuild what is damaged from what is whole.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def index(
    debug: bool,
    /,
    photos: Path,
    output: Path | None,
    local_features: bool | None,
    memory: int | None,
    device: str,
    scheduler: str | None,
    shards: str | None,
    retrain_whitening: bool,
    repair: bool,
    as_json: bool,
    pooling: str | None,
    scales: tuple[float, ...] | None,
    long_side: int | None,
    **given: Any,
) -> None:
    """Build an index of the folder PHOTOS, or update it."""
    with plain_errors(debug):
        folder = photos.resolve()
        target = output or index_of(folder)
        settled = {
            name: value for name, value in {**given, "local_features": local_features}.items() if value is not None
        }
        settled |= settings_of(pooling, scales, long_side)
        changes: Changes | None = None
        done: str | None = None
        # Of devices there is something to say where there are two.
        silent = as_json or (device == AUTO_DEVICE and not gpu_here())
        with devices_named(hidden=silent), progress_bars(hidden=as_json) as progress:
            on_estimate = None if as_json else lambda expected: err.print(str(expected))
            options: dict[str, Any] = {"memory": memory, "progress": progress, "on_estimate": on_estimate}
            options["client"] = _workers(scheduler, shards)
            if repair:
                done = Index.repair(target, folder, memory=memory, progress=progress)
            if not is_index(target):
                if retrain_whitening:
                    raise InvalidInputError(
                        f"{target} is no index yet; --whiten learn makes one that learns its whitening."
                    )
                made = Index.create(target, photos, device=device, **settled, **options)
            else:
                if local_features:
                    del settled["local_features"]  # they can be added
                    if retrain_whitening or repair:
                        raise InvalidInputError(
                            "--local-features is for a run of its own; leave out --retrain-whitening and --repair."
                        )
                made = _opened(target, photos, settled, device)
                moved = folder if folder != made.root else None
                if retrain_whitening:
                    changes = made.retrain_whitening(moved, **options)
                elif not repair:
                    changes = made.sync(moved, local_features=bool(local_features), **options)
        facts = made.info()
        if as_json:
            told = None if changes is None else vars(changes)
            click.echo(json.dumps({**facts, "changes": told, "repair": done}, indent=2))
        else:
            show_facts(facts, changes, done)
            out.print(target)
            if changes is None and done is None:
                there = shell_quote(target)
                err.print(f"look for something: manifind serve {there}")
                err.print(f"or, in the terminal: manifind search {there} PHOTO --box X0,Y0,X1,Y1")


def _opened(target: Path, photos: Path, settled: dict[str, Any], device: str) -> Index:
    """Open an index that is there, unless it is of other photos or was made with other choices."""
    made = Index.open(target, device=device)
    _check_settled(target, made.config_conflicts(**settled))
    if photos.resolve() != made.root and made.root.is_dir():
        raise InvalidInputError(f"{target} is the index of {made.root}, not of {photos}; choose another -o.")
    return made


def show_facts(facts: dict[str, Any], changes: Changes | None, done: str | None) -> None:
    """Print what is in an index, and what was done to it."""
    graph = f"{facts['regions']:,} regions, {facts['edges_a_region']:.1f} edges a region"
    out.print(f"{facts['photos']:,} photos can be searched ({graph})")
    if done:
        out.print(done)
    if changes is not None:
        # What was passed over is listed below, with the reasons.
        counts = {what: count for what, count in vars(changes).items() if what not in ("skipped", "unreadable")}
        if not changes.supplemented:
            del counts["supplemented"]
        out.print(", ".join(f"{count} {what}" for what, count in counts.items()))
        show_unreadable(changes.unreadable)
    show_skipped(facts["skipped"])


def show_unreadable(keys: tuple[str, ...]) -> None:
    """Print the photos that could be read before and cannot be now, the first few."""
    if keys:
        more = f", and {len(keys) - 10} more" if len(keys) > 10 else ""
        shown = ", ".join(visible(key) for key in keys[:10])
        out.print(f"{len(keys)} could be read before and cannot be now: {shown}{more}")


def _check_settled(target: Path, otherwise: dict[str, Any]) -> None:
    """Raise `InvalidInputError` where somebody asks for what the index was made without."""
    if otherwise:
        has = ", ".join(f"{name.replace('_', '-')} {_told(value)}" for name, value in otherwise.items())
        raise InvalidInputError(
            f"{target} was made with {has}, which is settled when an index is made; leave that out to bring the index "
            "up to date, or choose another -o to make one with what you gave."
        )


def _told(value: Any) -> str:
    """Return a choice as an option of the command says it."""
    if isinstance(value, list | tuple):
        return ",".join(f"{one:g}" for one in value)
    if value is None or isinstance(value, bool):
        return {None: "none", False: "off", True: "on"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _workers(scheduler: str | None, shards: str | None) -> Any:
    """Return who does the work: nobody, a scheduler by its address, or its workers with a folder for their files."""
    if shards is None:
        return scheduler
    if scheduler is None:
        raise InvalidInputError("--shards is where Dask's workers write; give their --scheduler too.")
    from manifind.distributed.workers import workers

    return workers(scheduler, shards=shards)
