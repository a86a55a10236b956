"""`manifind sets`."""

import errno
import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import click
from PIL import Image

from manifind.cli.terminal import check_formats, err, out, plain_errors
from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.index import Index
from manifind.index.sets import VERDICTS, PhotoSet, PhotoSets
from manifind.io import key_to_path, read_photo
from manifind.io.scan import open_original
from manifind.reports.results import hit_data, set_csv, set_data, shown, sidecars
from manifind.reports.text import archive_name, visible

JPEG_QUALITY = 92
"""Of a film's frame in an archive."""


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
    with plain_errors(debug, "interrupted; each set has its old state or its new."):
        check_formats(as_json=given["as_json"], as_csv=given["as_csv"])
        index = Index.open(index_path)
        if name is None:
            if any(value for option, value in given.items() if option != "as_json"):
                raise InvalidInputError("NAME is missing; give the name of a set.")
            list_sets(index.sets, as_json=given["as_json"])
        else:
            change_set(index, name, **given)


def list_sets(sets: PhotoSets, *, as_json: bool) -> None:
    """Print the sets with their counts."""
    photo_sets = list(sets)
    if as_json:
        click.echo(json.dumps({"sets": [set_data(photos) for photos in photo_sets]}, indent=2))
        return
    for photos in photo_sets:
        counts = {verdict: sum(photo.verdict == verdict for photo in photos.members) for verdict in VERDICTS}
        shown_counts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        search = ", with its search" if photos.search is not None else ""
        out.print(f"{visible(photos.name)}: {shown_counts or 'no photo'}{search}")
    if not photo_sets:
        err.print("there is no set yet; manifind search INDEX IMAGE --keep NAME makes one.")


def change_set(index: Index, name: str, **given: Any) -> None:
    """Apply the options to a set, then show or export it."""
    for verdict in VERDICTS:
        if given[verdict]:
            index.sets.add(name, given[verdict], verdict=verdict)
    if given["take"]:
        index.sets.discard(name, given["take"])
    if given["delete"]:
        index.sets.delete(name)
        err.print(f"{visible(name)} is deleted.")
        return
    if given["rename"]:
        name = index.sets.rename(name, given["rename"]).name
    if given["news"] or given["add_news"]:
        show_new_matches(index, name, add=given["add_news"], as_json=given["as_json"])
        return
    photos = index.sets[name]
    if given["archive"] is not None:
        write_zip(index.root, photos, given["archive"])
    if given["xmp"] is not None:
        write_sidecars(photos, given["xmp"])
    if given["as_json"]:
        click.echo(json.dumps(set_data(photos), indent=2))
    elif given["as_csv"]:
        click.echo(set_csv(photos), nl=False)
    elif given["archive"] is None and given["xmp"] is None:
        for photo in photos.members:
            out.print(f"{photo.verdict:<6}  {visible(photo.key)}{'' if photo.there else '  (gone)'}")


def show_new_matches(index: Index, name: str, *, add: bool, as_json: bool) -> None:
    """Print the new matches of a set's search; `add` adds them to the set as unsure."""
    matches = index.sets.new_matches(name, remember=add)
    if add:
        index.sets.add(name, matches, verdict="unsure")
    if as_json:
        click.echo(json.dumps({"name": name, "news": [hit_data(hit) for hit in matches]}, indent=2))
        return
    for hit in matches:
        out.print(f"{hit.score:8.4f}  {visible(hit.key)}")
    err.print(f"{len(matches)} new" if matches else "nothing new.")


def write_zip(root: Path, photos: PhotoSet, file: Path) -> None:
    """Write the photos of a set to an archive; a file that is no photo below `root` is left out."""
    if file.is_dir() or not file.resolve().parent.is_dir():
        raise InvalidInputError(f"{file} is a folder or lies in none; give the name of a file to write, found.zip say.")
    left_out = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("set.csv", set_csv(photos))
        for photo in shown(photos):
            try:
                _archive_photo(archive, root, photo.key)
            except UnreadableImageError as error:
                left_out.append(f"{visible(photo.key)} is left out: {error.reason}.")
    err.print(f"wrote {file}")
    for line in left_out:
        err.print(line)


def _archive_photo(archive: zipfile.ZipFile, root: Path, key: str) -> None:
    """Add the file of a photo to an archive; of a film's frame, a JPEG."""
    original = open_original(root, key)
    with original.file as source:
        if original.frame is None:
            with archive.open(archive_name(key), "w", force_zip64=True) as into:
                shutil.copyfileobj(source, into)
            return
    buffer = io.BytesIO()
    Image.fromarray(read_photo(key_to_path(root, key), root=root).pixels).save(buffer, "JPEG", quality=JPEG_QUALITY)
    archive.writestr(archive_name(f"{key}.jpg"), buffer.getvalue())


def write_sidecars(photos: PhotoSet, folder: Path) -> None:
    """Write the sidecars of a set below a folder; a file that exists is kept, and no link is followed out of it."""
    written, left_out = 0, []
    for name, content in sidecars(photos):
        reason = _write_sidecar(folder, name, content)
        if reason is None:
            written += 1
        else:
            left_out.append(f"{visible(name)} {reason}.")
    err.print(f"wrote {written} sidecars to {folder}")
    for line in left_out:
        err.print(line)


def _write_sidecar(folder: Path, name: str, content: bytes) -> str | None:
    """Write one sidecar; where it cannot be written while others can, return why."""
    file = key_to_path(folder, name)
    try:
        if not file.parent.resolve().is_relative_to(folder.resolve()):
            return "is left out: a link leads out of the folder"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            stream.write(content)
    except (FileExistsError, NotADirectoryError):
        return "exists already, and is left as it is"
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return "is left out: its name is too long"
    return None
