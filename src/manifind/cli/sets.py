"""`manifind sets`."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import click
from PIL import Image

from manifind.cli.terminal import check_formats, err, out, plain_errors
from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.index import Index
from manifind.index.sets import VERDICTS, PhotoSet, PhotoSets
from manifind.io import key_to_path
from manifind.io.video import frame_of
from manifind.reports.results import hit_data
from manifind.reports.sets import set_csv, set_data, shown, sidecars
from manifind.reports.text import archived, visible


@click.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@click.argument("name", required=False)
@click.option(
    "--yes", multiple=True, metavar="KEY", help="Add a photo that shows it; may be repeated, as the next ones."
)
@click.option("--no", multiple=True, metavar="KEY", help="Add a photo that does not show it.")
@click.option("--unsure", multiple=True, metavar="KEY", help="Add a photo that may show it.")
@click.option("--take", multiple=True, metavar="KEY", help="Take a photo out of the set.")
@click.option("--rename", metavar="NEW", help="Give the set another name.")
@click.option("--delete", is_flag=True, help="Forget the set; no photo is touched.")
@click.option("--news", is_flag=True, help="Show the new matches of its search.")
@click.option("--add-news", is_flag=True, help="The same, and add it to the set as unsure.")
@click.option("--zip", "archive", type=click.Path(path_type=Path), help="Write its photos, those with a yes, to a zip.")
@click.option("--xmp", type=click.Path(path_type=Path), help="Write XMP sidecars with the set's name to this folder.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def sets(debug: bool, /, index_path: Path, name: str | None, **given: Any) -> None:
    """Keep, judge and export sets of results from INDEX."""
    with plain_errors(debug, "interrupted; the sets are as they were, or as they were meant to be."):
        check_formats(as_json=given["as_json"], as_csv=given["as_csv"])
        opened = Index.open(index_path)
        if name is None:
            if any(value for option, value in given.items() if option != "as_json"):
                raise InvalidInputError("NAME is missing; give the name of a set.")
            show_names(opened.sets, as_json=given["as_json"])
        else:
            work_on(opened, name, **given)


def show_names(found: PhotoSets, *, as_json: bool) -> None:
    """Print what sets there are."""
    every = list(found)
    if as_json:
        click.echo(json.dumps({"sets": [set_data(one) for one in every]}, indent=2))
        return
    for one in every:
        counts = ", ".join(f"{count} {what}" for what in VERDICTS if (count := _count(one, what)))
        kept = ", with its search" if one.search is not None else ""
        out.print(f"{visible(one.name)}: {counts or 'no photo'}{kept}")
    if not every:
        err.print("there is no set yet; manifind search INDEX IMAGE --keep NAME makes one.")


def work_on(opened: Index, name: str, **given: Any) -> None:
    """Change a set as asked, and show or export it."""
    for verdict in VERDICTS:
        if given[verdict]:
            opened.sets.add(name, given[verdict], verdict=verdict)
    if given["take"]:
        opened.sets.discard(name, given["take"])
    if given["delete"]:
        opened.sets.delete(name)
        err.print(f"{visible(name)} is forgotten.")
        return
    if given["rename"]:
        name = opened.sets.rename(name, given["rename"]).name
    if given["news"] or given["add_news"]:
        found = opened.sets.new_matches(name, remember=given["add_news"])
        if given["add_news"]:
            opened.sets.add(name, found, verdict="unsure")
        if given["as_json"]:
            click.echo(json.dumps({"name": name, "news": [hit_data(hit) for hit in found]}, indent=2))
            return
        for hit in found:
            out.print(f"{hit.score:8.4f}  {visible(hit.key)}")
        err.print(f"{len(found)} new" if found else "nothing new.")
        return
    one = opened.sets[name]
    if given["archive"] is not None:
        write_zip(opened, one, given["archive"])
    if given["xmp"] is not None:
        write_sidecars(one, given["xmp"])
    if given["as_json"]:
        click.echo(json.dumps(set_data(one), indent=2))
    elif given["as_csv"]:
        click.echo(set_csv(one), nl=False)
    elif given["archive"] is None and given["xmp"] is None:
        for photo in one.members:
            out.print(f"{photo.verdict:<6}  {visible(photo.key)}{'' if photo.there else '  (gone)'}")


def write_zip(opened: Index, one: PhotoSet, file: Path) -> None:
    """Write the photos of a set to an archive."""
    if file.is_dir() or not file.resolve().parent.is_dir():
        raise InvalidInputError(f"{file} is a folder or lies in none; give the name of a file to write, found.zip say.")
    missing = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("set.csv", set_csv(one))
        for photo in shown(one):
            try:
                name, content = _content(opened, photo.key)
            except (OSError, UnreadableImageError):
                missing.append(photo.key)
                continue
            archive.writestr(archived(name), content)
    err.print(f"wrote {file}")
    for key in missing:
        err.print(f"{visible(key)} has no file any more, and is left out.")


def _content(opened: Index, key: str) -> tuple[str, bytes]:
    """Return the name and the bytes of a photo's file; of a film's frame, those of a JPEG."""
    path = key_to_path(opened.root, key)
    if frame_of(path) is None:
        return key, path.read_bytes()
    buffer = io.BytesIO()
    Image.fromarray(opened.photo(key).pixels).save(buffer, "JPEG", quality=92)
    return f"{key}.jpg", buffer.getvalue()


def write_sidecars(one: PhotoSet, folder: Path) -> None:
    """Write the sidecars of a set below a folder; one that is there is left as it is."""
    written, there = 0, []
    for name, content in sidecars(one):
        file = key_to_path(folder, name)
        if file.exists():
            there.append(name)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        written += 1
    err.print(f"wrote {written} sidecars to {folder}")
    for name in there:
        err.print(f"{visible(name)} is there already, and is left as it is.")


def _count(one: PhotoSet, verdict: str) -> int:
    return sum(photo.verdict == verdict for photo in one.members)
