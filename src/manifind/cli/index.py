"""`manifind index`."""

import json
from pathlib import Path
from typing import Any

import click

from manifind.cli.extraction_options import WHITEN, extraction_options, settings_of
from manifind.cli.parameters import BYTES, DEVICE, FRAME_INTERVAL, photos_location
from manifind.cli.terminal import devices_named, err, out, plain_errors, progress_bars, show_skipped
from manifind.errors import InvalidInputError, shell_quote
from manifind.graph import AUTO, GRAPHS
from manifind.iiif import MirrorConfig, default_name, mirror
from manifind.index import Changes, Index
from manifind.index.config import PRESETS
from manifind.index.storage.layout import SUFFIX, index_of, is_index
from manifind.kernels import AUTO as AUTO_DEVICE
from manifind.kernels.cuda import gpu_here
from manifind.reports.text import visible

SHOWN_REASONS = 10
"""Reasons why an image was skipped, at most."""


@click.command()
@click.argument("photos", type=photos_location)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The index; PHOTOS.manifind by default.")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="All choices by one name; other options override it.")
@extraction_options
@WHITEN
@click.option("-k", type=click.IntRange(min=1), help="Neighbours of each region in the graph; by the number of photos.")
@click.option("--knn", type=click.Choice([AUTO, *GRAPHS]), help="How to find neighbours; auto by default.")
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
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out files and folders that match, by gitignore's rules; may be repeated, '' for none any more.",
)
@click.option(
    "--follow-links/--no-follow-links",
    default=None,
    help="Whether links to files and folders count; they do unless told otherwise.",
)
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Another host that images of a manifest may come from."
)
@click.option("--allow-private", is_flag=True, help="Fetch a manifest from this machine or a private network.")
@click.option("--max-bytes", type=BYTES, help="What the images of a manifest may take.  [default: 20GiB]")
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
    photos: Path | str,
    output: Path | None,
    local_features: bool | None,
    exclude: tuple[str, ...],
    follow_links: bool | None,
    hosts: tuple[str, ...],
    allow_private: bool,
    max_bytes: int | None,
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
    """Build an index of the folder PHOTOS, or update it.

    PHOTOS may be the address of a IIIF manifest or collection, https://…: its images are kept in a folder beside the
    index.
    """
    with plain_errors(debug):
        if isinstance(photos, str):
            output = output or Path(f"{default_name(photos)}{SUFFIX}")
            images = MirrorConfig() if max_bytes is None else MirrorConfig(max_bytes=max_bytes)
            photos = fetch_manifest(photos, output, hosts, images, private=allow_private, quiet=as_json)
        elif hosts or allow_private or max_bytes is not None:
            raise InvalidInputError("--host, --allow-private and --max-bytes are for the address of a manifest.")
        folder = photos.resolve()
        target = output or index_of(folder)
        config = {**given, "local_features": local_features}
        config = {name: value for name, value in config.items() if value is not None}
        config |= settings_of(pooling, scales, long_side)
        given_rules = {"exclude": exclude or None, "follow_links": follow_links}
        rules: dict[str, Any] = {name: value for name, value in given_rules.items() if value is not None}
        changes: Changes | None = None
        repaired: str | None = None
        # Of devices there is something to say where there are two.
        silent = as_json or (device == AUTO_DEVICE and not gpu_here())
        with devices_named(hidden=silent), progress_bars(hidden=as_json) as progress:
            on_estimate = None if as_json else lambda expected: err.print(str(expected))
            options: dict[str, Any] = {"memory": memory, "progress": progress, "on_estimate": on_estimate}
            options["client"] = _workers(scheduler, shards)
            if repair:
                repaired = Index.repair(target, folder, memory=memory, progress=progress)
            if not is_index(target):
                if retrain_whitening:
                    raise InvalidInputError(
                        f"{target} is no index yet; --whiten learn makes one that learns its whitening."
                    )
                built = Index.create(target, photos, device=device, **config, **rules, **options)
            else:
                if local_features:
                    del config["local_features"]  # they can be added
                    if retrain_whitening or repair:
                        raise InvalidInputError(
                            "--local-features is for a run of its own; leave out --retrain-whitening and --repair."
                        )
                built = _open_index(target, photos, config, device)
                if rules and (retrain_whitening or repair):
                    raise InvalidInputError(
                        "--exclude and --follow-links are for a run of their own; leave out --retrain-whitening and "
                        "--repair."
                    )
                new_root = folder if folder != built.root else None
                if retrain_whitening:
                    changes = built.retrain_whitening(new_root, **options)
                elif not repair:
                    changes = built.sync(new_root, local_features=bool(local_features), **rules, **options)
        facts = built.info()
        if as_json:
            counts = None if changes is None else vars(changes)
            click.echo(json.dumps({**facts, "changes": counts, "repair": repaired}, indent=2))
        else:
            show_facts(facts, changes, repaired)
            out.print(target)
            if changes is None and repaired is None:
                path = shell_quote(target)
                err.print(f"look for something: manifind serve {path}")
                err.print(f"or, in the terminal: manifind search {path} PHOTO --box X0,Y0,X1,Y1")


def fetch_manifest(
    address: str, target: Path, hosts: tuple[str, ...], config: MirrorConfig, *, private: bool, quiet: bool
) -> Path:
    """Mirror the images of a manifest in the folder beside its index; return the folder."""
    folder = target.with_suffix("") if target.suffix == SUFFIX else target.with_name(f"{target.name}-photos")
    with progress_bars(hidden=quiet) as progress:
        done = mirror(address, folder, hosts=hosts, allow_private=private, config=config, progress=progress)
    if not quiet:
        err.print(
            f"{folder}: {done.fetched} images fetched, {done.unchanged} unchanged, {done.removed} removed, "
            f"{len(done.skipped)} skipped."
        )
        for sentence in done.skipped[:SHOWN_REASONS]:
            err.print(f"  {visible(sentence)}")
    return folder


def _open_index(target: Path, photos: Path, config: dict[str, Any], device: str) -> Index:
    """Open an existing index, unless it has other photos or another configuration."""
    index = Index.open(target, device=device)
    if conflicts := index.config_conflicts(**config):
        has = ", ".join(f"{name.replace('_', '-')} {_format_value(value)}" for name, value in conflicts.items())
        raise InvalidInputError(
            f"{target} was built with {has}, which cannot change. Leave the option out to update the index, or choose "
            "another -o for a new one.",
            code="config-conflict",
        )
    if photos.resolve() != index.root and index.root.is_dir():
        raise InvalidInputError(f"{target} is the index of {index.root}, not of {photos}; choose another -o.")
    return index


def show_facts(facts: dict[str, Any], changes: Changes | None, repaired: str | None) -> None:
    """Print what an index holds, and what has changed."""
    graph = f"{facts['regions']:,} regions, {facts['edges_a_region']:.1f} edges a region"
    out.print(f"{facts['photos']:,} photos can be searched ({graph})")
    if repaired:
        out.print(repaired)
    if changes is not None:
        # Skipped files are listed below, with the reasons.
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


def _format_value(value: Any) -> str:
    """Return a value as an option of the command spells it."""
    if isinstance(value, list | tuple):
        return ",".join(f"{number:g}" for number in value)
    if value is None or isinstance(value, bool):
        return {None: "none", False: "off", True: "on"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _workers(scheduler: str | None, shards: str | None) -> Any:
    """Return a scheduler by its address, its workers with a folder for their files, or None."""
    if shards is None:
        return scheduler
    if scheduler is None:
        raise InvalidInputError("--shards is where Dask's workers write; give their --scheduler too.")
    from manifind.distributed.workers import workers

    return workers(scheduler, shards=shards)
