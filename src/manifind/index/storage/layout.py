"""Errors for a folder that is no index: a folder of photos, or an index whose build was interrupted.

During a build the folder of the writer has a note of the photos to extract. From it, the error of a search before
the build is finished says how far the build came and how to go on.
"""

import json
from pathlib import Path

from manifind.errors import InvalidInputError, MissingFileError, shell_quote
from manifind.io import list_photos
from manifind.storage import disk, store

NOTE = "wanted.json"
"""In the writer's folder: the folder of the photos, and how many there are."""

SUFFIX = ".manifind"


def index_of(photos: Path) -> Path:
    """Return where the index of a folder of photos lies unless another place is given."""
    folder = photos.resolve()
    return folder.with_name(f"{folder.name}{SUFFIX}")


def is_index(path: Path) -> bool:
    """Say whether a finished index lies here."""
    return (path / store.MANIFEST).exists()


def has_index_files(path: Path) -> bool:
    """Say whether a folder holds an index, finished or not, or what is left of one."""
    ours = (store.MANIFEST, store.LOCK, store.WORK)
    return any((path / name).exists() for name in ours) or bool(store.copies_of_manifest(path))


def is_folder_of_photos(path: Path) -> bool:
    """Say whether a folder holds photos and no index, finished or not."""
    return not has_index_files(path) and next(list_photos(path), None) is not None


def note(work: Path, root: Path, photos: int) -> None:
    """Write the note of a build: the folder of its photos, and how many there are."""
    disk.write(work / NOTE, [json.dumps({"root": str(root.resolve()), "photos": photos}).encode()])


def check_finished(path: Path) -> None:
    """Raise an error where there is plainly no finished index, and say what is there or what to do."""
    if is_index(path):
        return
    if not path.exists():
        photos = path.with_name(path.name.removesuffix(SUFFIX))
        if photos != path and photos.is_dir():
            raise MissingFileError(f"{path} is not there yet; make it with manifind index {shell_quote(photos)}.")
        return
    if not path.is_dir():
        raise InvalidInputError(f"{path} is a file; give the folder of an index, photos{SUFFIX} say.")
    if store.copies_of_manifest(path):
        return  # it was one, and can be repaired
    if (path / store.LOCK).exists() or (path / store.WORK).is_dir():
        raise InvalidInputError(_progress(path))
    beside = index_of(path)
    if is_index(beside):
        raise InvalidInputError(f"{path} is a folder of photos; its index is {_beside(path, beside)}.")
    if beside.is_dir() and (beside / store.WORK).is_dir():
        raise InvalidInputError(f"{path} is a folder of photos. Its index is not finished: {_progress(beside)}")
    if next(list_photos(path), None) is not None:
        raise InvalidInputError(
            f"{path} is a folder of photos; make its index with manifind index {shell_quote(path)}."
        )
    raise InvalidInputError(f"{path} is a folder without an index in it; give one that manifind index made.")


def _beside(path: Path, index: Path) -> Path:
    """Return the index's path in the words in which its photos' path was given."""
    return path.with_name(index.name) if path.name == index.name.removesuffix(SUFFIX) else index


def _progress(path: Path) -> str:
    work = path / store.WORK
    try:
        wanted = json.loads((work / NOTE).read_text(encoding="utf-8"))
        root, photos = str(wanted["root"]), int(wanted["photos"])
    except (OSError, ValueError, TypeError, KeyError):
        return f"{path} was not finished; run manifind index PHOTOS -o {shell_quote(path)} to go on."
    done = max((_lines(file) for file in work.glob("*/photos.jsonl")), default=0)
    where = "" if index_of(Path(root)) == path.resolve() else f" -o {shell_quote(path)}"
    return (
        f"{path} has {done:,} of {photos:,} photos extracted; run manifind index {shell_quote(root)}{where} to go on."
    )


def _lines(file: Path) -> int:
    try:
        return file.read_bytes().count(b"\n")
    except OSError:
        return 0
