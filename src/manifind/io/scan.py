r"""The photos of a folder.

A photo is known by its key, its path below the folder in POSIX form: ``holiday/beach.jpg``. Keys can be printed and
kept in JSON or a database whatever a file is called, and lead back to the file: bytes that are not UTF-8, control
characters and line separators are written ``\xNN``, byte by byte, and a backslash as ``\\``. All other names stand as
they are.

What counts is what the files hold, not what they are called: a file whose first bytes begin no photo is skipped, in
silence unless it is called like one. Skipped in silence are also hidden files and folders (names that begin with a
dot), pipes and devices, manifind's own indexes, and what patterns leave out (`manifind.io.ignore`). A folder whose
ignore file cannot be read is not listed: what it would leave out is not known.

Links are followed, to files and to folders, inside or outside, unless the rules say otherwise. A folder is listed once:
at its own place if that is below the root, else at the first of the links to it, those nearest to the root first. Links
to a folder that holds the root lead nowhere. So loops end, and the listing of an unchanged folder is always the same.
"""

import heapq
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.io.files import HEAD_BYTES, access_reason, modified_ns, open_regular, printable, read_head
from manifind.io.ignore import FileRules, Rules, rules_of
from manifind.io.image import photo_format
from manifind.io.video import locate_frame, video_format

PHOTO_NAMES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".gif", ".webp", ".avif", ".heic", ".heif", ".hif"),
    *(".tif", ".tiff", ".bmp", ".dib", ".jp2", ".j2k", ".jpf", ".jpx", ".pgm", ".ppm", ".pnm", ".jxl"),
)
"""How photos are called: a file called so that holds none is worth a word."""
RAW_NAMES = (
    *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dng", ".erf", ".kdc", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf"),
    *(".raw", ".rw2", ".sr2", ".srf", ".srw", ".x3f"),
)
"""How cameras call their raw files; those that begin like a photo are read, or say themselves why not."""
FILM_NAMES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".wmv", ".flv", ".m2ts", ".m2t", ".ogv")
"""How films are called; a .ts or .mts that is no film is TypeScript, and is skipped in silence."""

_ESCAPE = re.compile(rb"\\(?:\\|x([0-9A-F]{2}))?")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file that begins like a photo."""

    key: str
    path: Path
    size: int
    """In bytes."""
    mtime_ns: int
    """When it was last changed, in nanoseconds since 1970."""
    film: bool = False
    """Whether it is a film, whose frames are meant."""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file or folder that should have been listed and could not be."""

    key: str
    reason: str


def list_photos(
    root: str | os.PathLike[str],
    *,
    films: bool = False,
    files: FileRules | None = None,
    base: str | os.PathLike[str] | None = None,
) -> Iterator[ListedFile | SkippedFile]:
    """List the photos below a folder as they are found, sorted by key, with what had to be left out and why.

    Parameters
    ----------
    root : path
    films : bool
        Whether to list films too.
    files : FileRules, optional
        Which files count; by default all but those that ignore files leave out.
    base : path, optional
        The folder whose files the rules are about, `root` or one above it.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise InvalidInputError(
            f"root is {os.fspath(root)!r}, which is not a folder; give the folder that holds the photos."
        )
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise InvalidInputError(f"root {os.fspath(root)!r} cannot be listed: {access_reason(error)}.") from error
    try:
        rules = rules_of(folder if base is None else Path(base), files or FileRules(), None if base is None else folder)
    except InvalidInputError as error:
        raise InvalidInputError(f"root {os.fspath(root)!r} cannot be listed: {error.problem}.") from error
    return _list(folder, films, rules)


def key_of(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> str:
    """Return the key of a file below `root`."""
    try:
        below = Path(path).relative_to(root)
    except ValueError:
        raise InvalidInputError(
            f"path {os.fspath(path)!r} is not below root {os.fspath(root)!r}; give one that is."
        ) from None
    return "/".join(_escaped(part) for part in below.parts)


def key_to_path(root: str | os.PathLike[str], key: str) -> Path:
    """Return the path of the file with this key; a key that leads out of `root` is refused."""

    def unescaped(match: re.Match[bytes]) -> bytes:
        if match[0] == b"\\":
            raise InvalidInputError(f"key {key!r} is not valid: a backslash must be doubled or begin \\xNN.")
        return bytes.fromhex(match[1].decode()) if match[1] else b"\\"

    try:
        parts = [_ESCAPE.sub(unescaped, part) for part in key.encode().split(b"/")]
    except UnicodeEncodeError:
        raise InvalidInputError(f"key {key!r} is not valid: it has lone surrogates, which are not text.") from None
    if any(part in (b"", b".", b"..") or b"/" in part or b"\0" in part for part in parts):
        raise InvalidInputError(f"key {key!r} is not valid: give the path of a file below the root.")
    return Path(root, *(os.fsdecode(part) for part in parts))


def _escaped(name: str) -> str:
    """Write the name of a file so that it can be printed, stored and read back."""
    text = os.fsencode(name).decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_escaped_character(character) for character in text)


def _escaped_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
        return "".join(f"\\x{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))
    return character


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file or folder of a folder, links followed."""

    key: str
    path: Path
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a folder is listed, and what is left out of it; no key for the folders that hold the root."""

    key: str | None
    rules: Rules
    fault: str | None = None
    """What is wrong with its ignore file."""


def _list(root: Path, films: bool, rules: Rules) -> Iterator[ListedFile | SkippedFile]:
    places = _places(root, rules)
    # The folders on the way down, each with what is left of it: a path may be deeper than Python's recursion.
    descent = [iter(_entries(root, "", rules))]
    while descent:
        entry = next(descent[-1], None)
        if entry is None:
            descent.pop()
        elif isinstance(entry, SkippedFile):
            yield entry
        elif not entry.is_folder:
            yield from _sniffed(entry, films)
        elif (identity := _identity(entry.status)) in places:  # else it was made since, for the next time
            place = places[identity]
            if place.key == entry.key and place.fault is not None:
                yield SkippedFile(entry.key, place.fault)
            elif place.key == entry.key:
                descent.append(iter(_entries(entry.path, entry.key, place.rules)))
            else:
                where = "that holds this one" if place.key is None else "that is listed at another place"
                yield SkippedFile(entry.key, f"a link to a folder {where}")


def _entries(folder: Path, key: str, rules: Rules) -> list[_Entry | SkippedFile]:
    """Return what is in a folder, in the order of the keys that it leads to."""
    try:
        visible = _visible(folder, rules)
    except OSError as error:
        return [SkippedFile(key, access_reason(error))]
    entries: list[_Entry | SkippedFile] = []
    for item in visible:
        below = _below(key, item.name)
        try:
            entries.append(_Entry(below, Path(item.path), item.stat()))
        except FileNotFoundError:
            entries.append(SkippedFile(below, "a link to nothing" if item.is_symlink() else "no such file"))
        except OSError as error:
            entries.append(SkippedFile(below, access_reason(error)))
    return sorted(entries, key=lambda e: e.key + "/" if isinstance(e, _Entry) and e.is_folder else e.key)


def _sniffed(entry: _Entry, films: bool) -> Iterator[ListedFile | SkippedFile]:
    """Yield a file if it begins like a photo, or why it cannot be read, or nothing."""
    if not stat.S_ISREG(entry.status.st_mode):
        return
    try:
        head = read_head(entry.path)
    except UnreadableImageError as error:
        yield SkippedFile(entry.key, error.reason)
        return
    is_photo = photo_format(head) is not None
    if is_photo or (films and video_format(head, entry.path.name) is not None):
        yield ListedFile(entry.key, entry.path, entry.status.st_size, modified_ns(entry.status), film=not is_photo)
    else:
        reason = _called_otherwise(entry.key.lower(), films)
        if reason is not None:
            yield SkippedFile(entry.key, reason if head else "empty file")


def _called_otherwise(name: str, films: bool) -> str | None:
    """Say what a file with a photo's or a film's name should have been; None for any other name."""
    if name.endswith(PHOTO_NAMES):
        return "not a photo"
    if name.endswith(RAW_NAMES):
        return "a raw file of a kind that is not read; export it as JPEG or TIFF"
    return "not a film" if films and name.endswith(FILM_NAMES) else None


def _places(root: Path, rules: Rules) -> dict[tuple[int, int], _Place]:
    """Return where each folder is listed, by its identity."""
    places: dict[tuple[int, int], _Place] = {}
    for above in root.resolve().parents:
        with suppress(OSError):
            places[_identity(above.stat())] = _Place(None, rules)
    # Folders proper come before all links, links near the root before others.
    queue: list[tuple[int, str, Path, Rules]] = [(0, "", root, rules)]
    while queue:
        _, key, path, rules = heapq.heappop(queue)
        folders = [(key, path, rules)]
        while folders:
            key, path, rules = folders.pop()
            with suppress(OSError):  # reported when it is listed
                identity = _identity(path.stat())
                if identity in places:
                    continue
                try:
                    rules = rules.with_file(path) if key else rules
                except InvalidInputError as error:
                    places[identity] = _Place(key, rules, error.problem)
                    continue
                places[identity] = _Place(key, rules)
                for item in _visible(path, rules):
                    below = _below(key, item.name)
                    if item.is_dir(follow_symlinks=False):
                        folders.append((below, Path(item.path), rules.below(item.name)))
                    elif _is_link_to_folder(item):
                        heapq.heappush(queue, (below.count("/"), below, Path(item.path), rules.below(item.name)))
    return places


def _visible(folder: Path, rules: Rules) -> list[os.DirEntry[str]]:
    """Return what is in a folder but hidden files and folders, indexes, and what the rules leave out."""
    with os.scandir(folder) as items:
        return [item for item in items if not item.name.startswith(".") and _counts(item, rules)]


def _counts(item: os.DirEntry[str], rules: Rules) -> bool:
    if not rules.follow_links and item.is_symlink():
        return False
    return not _is_index(item) and not rules.excludes(item.name, _is_folder(item))


def _is_folder(item: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return item.is_dir()
    return False


def _is_index(item: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return item.name.endswith(".manifind") and Path(item.path, "manifest.json").is_file()
    return False


def _is_link_to_folder(item: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return item.is_symlink() and item.is_dir()
    return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _below(key: str, name: str) -> str:
    return f"{key}/{_escaped(name)}" if key else _escaped(name)


@dataclass(frozen=True)
class Original:
    """The open file of a photo, or of its film if it is a frame."""

    file: BinaryIO
    path: Path
    format: str
    """As `photo_format` and `video_format` name it."""
    frame: Path | None
    """The path of the frame, if the photo is one."""


def open_original(root: Path, key: str, *, follow_links: bool = False) -> Original:
    """Open the file of a photo by its key, or raise `UnreadableImageError`.

    The file must begin like a photo, or like a film if the key is that of a frame. Unless `follow_links`, it must lie
    below `root`, links resolved; the error's code is ``outside-root`` where it does not.
    """
    try:
        path = key_to_path(root, key)
    except InvalidInputError as error:
        raise UnreadableImageError("no file can be named so", printable(key), code="no-access") from error
    frame, located = None, locate_frame(path)
    if located is not None:
        frame, path = path, located[0]
    file = open_regular(path, root=None if follow_links else root)
    try:
        head = file.read(HEAD_BYTES)
        file.seek(0)
    except OSError as error:
        file.close()
        raise UnreadableImageError(access_reason(error), printable(path), code="no-access") from error
    format_name = photo_format(head) if frame is None else video_format(head, path.name)
    if format_name is None:
        file.close()
        raise UnreadableImageError("not a photo any more", printable(path), code="not-a-photo")
    return Original(file, path, format_name, frame)
