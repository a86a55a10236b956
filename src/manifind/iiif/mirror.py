"""A folder with the images of a manifest or a collection of manifests, kept up to date.

A photo's name is made of its label and its canvas's address, so that it stays the same whatever else is published.
`CANVASES` says what each photo is of, and is written every few images: an interrupted run goes on from there. What is
not published any more is removed, but only what this file lists.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from manifind.errors import DamagedError, InvalidInputError
from manifind.iiif.fetch import FetchConfig, Fetcher, FetchError, is_web_address
from manifind.iiif.presentation import Canvas, canvases_of, is_collection, is_manifest, members_of
from manifind.storage import disk
from manifind.types import StageProgress

CANVASES = "iiif.json"
FORMAT = 1
MAX_BYTES = 2**28
"""Of the file that is read back."""
BATCH = 32
"""Images that are asked for before the next are looked at."""
LONGEST_LABEL = 60


@dataclass(frozen=True)
class MirrorConfig:
    """What is downloaded."""

    side: int = 1600
    """Longer side of an image, in pixels: verification at full resolution takes no more (1,600 at most)."""
    max_bytes: int = 20 * 2**30
    """What the images of one run may take."""
    max_documents: int = 100_000
    """Manifests and collections that one run reads."""
    fetch: FetchConfig = field(default_factory=FetchConfig)


@dataclass
class MirrorReport:
    """What a run did."""

    fetched: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: list[str] = field(default_factory=list)
    """Why an image or a manifest was not taken, a sentence each."""


def mirror(
    address: str,
    folder: Path,
    *,
    hosts: Iterable[str] = (),
    allow_private: bool = False,
    config: MirrorConfig | None = None,
    progress: StageProgress | None = None,
) -> MirrorReport:
    """Download the images of a manifest or a collection into a folder, or bring the folder up to date.

    Parameters
    ----------
    address : str
        Of a manifest or a collection, of the Presentation API 2 or 3.
    folder : Path
        Where the images go: a new folder, or one that `mirror` made of the same address.
    hosts : iterable of str
        Hosts that may be asked besides that of the address.
    allow_private : bool
        Whether hosts may be on this machine or a private network.
    config : MirrorConfig, optional
    progress : callable, optional
        Called with the stage ("manifests", "images"), how much of it is done, and how much there is.
    """
    config, report = config or MirrorConfig(), MirrorReport()
    if not is_web_address(address):
        raise InvalidInputError(f"{address[:200]!r} is no address of a manifest; give https://….", code="address")
    named = frozenset(one.lower() for one in (urlsplit(address).hostname or "", *hosts))
    fetcher = Fetcher(named, allow_private=allow_private, max_bytes=config.max_bytes, config=config.fetch)
    before = _open_folder(folder, address)
    known = dict(before)
    kept: dict[str, dict[str, Any]] = {}
    tell = progress or (lambda *_: None)
    for document in _manifests(fetcher, address, config.max_documents, report, tell):
        canvases = {_key(one): one for one in canvases_of(document)}
        report.skipped += [] if canvases else [f"{address[:200]} has a manifest without images."]
        names = list(canvases)
        for start in range(0, len(names), BATCH):
            batch = {name: canvases[name] for name in names[start : start + BATCH]}
            take = partial(_take, fetcher, folder, known, config.side)
            try:
                with ThreadPoolExecutor(config.fetch.at_once) as pool:
                    for name, result in zip(batch, pool.map(take, batch, batch.values()), strict=True):
                        if isinstance(result, str):
                            report.skipped.append(result)
                            if name in known:  # it was there before, and may be there again
                                kept[name] = known[name]
                            continue
                        report.unchanged += result is known.get(name)
                        report.fetched += result is not known.get(name)
                        kept[name] = result
            finally:
                _write(folder, address, {**known, **kept})
            tell("images", min(start + BATCH, len(names)), len(names))
    whole = not report.skipped
    if whole:
        for name in known.keys() - kept.keys():
            disk.remove(folder / name)
            report.removed += 1
    _write(folder, address, kept if whole else {**known, **kept})
    if not kept:
        why = report.skipped[0] if report.skipped else "it lists none."
        raise InvalidInputError(f"no image of {address[:200]} could be taken: {why}", code="no-images")
    return report


def default_name(address: str) -> str:
    """Return the name of an index of a manifest: its host and the end of its path."""
    parts = urlsplit(address)
    return _slug(f"{parts.hostname} {parts.path.removesuffix('/manifest.json').removesuffix('/manifest')}")


def read_canvases(folder: Path) -> dict[str, Canvas]:
    """Return what each photo of a mirrored folder is of, by key; nothing where the folder was not mirrored."""
    file = folder / CANVASES
    if not file.exists():
        return {}
    canvases = {}
    for key, entry in _read(file)["photos"].items():
        place = entry["place"]
        canvases[key] = Canvas(
            entry["canvas"], entry["manifest"], entry["label"], entry["image"], (place[0], place[1], place[2], place[3])
        )
    return canvases


def _manifests(
    fetcher: Fetcher, address: str, limit: int, report: MirrorReport, tell: Callable[[str, int, int], None]
) -> Iterator[Any]:
    """Yield the manifests at an address, each once."""
    seen, waiting = {address}, [address]
    done = 0
    while waiting:
        here = waiting.pop(0)
        done += 1
        try:
            document = json.loads(fetcher.document(here))
        except (FetchError, ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, FetchError) else f"{here[:200]} is no JSON."
            if here == address:
                raise InvalidInputError(reason, code=getattr(error, "code", "not-json")) from None
            report.skipped.append(reason)
            continue
        if is_manifest(document):
            yield document
        elif is_collection(document):
            new = [member for member in members_of(document) if member not in seen]
            if len(seen) + len(new) > limit:
                raise InvalidInputError(f"{address[:200]} lists more than {limit:,} manifests; give a smaller one.")
            seen.update(new)
            waiting += new
        elif here == address:
            raise InvalidInputError(
                f"{address[:200]} is neither a manifest nor a collection of IIIF; give the address of one.",
                code="no-manifest",
            )
        else:
            report.skipped.append(f"{here[:200]} is neither a manifest nor a collection.")
        tell("manifests", done, done + len(waiting))


def _take(
    fetcher: Fetcher, folder: Path, known: dict[str, dict[str, Any]], side: int, key: str, canvas: Canvas
) -> dict[str, Any] | str:
    """Return the entry of an image that is there by now, or why it is not."""
    entry, file = known.get(key), folder / key
    data = asdict(canvas)
    data.pop("is_service")
    data["place"] = list(canvas.place)
    if (
        entry is not None
        and {name: entry.get(name) for name in data} == data
        and file.is_file()
        and file.stat().st_size == entry["bytes"]
    ):
        return entry
    try:
        address = canvas.image
        if canvas.is_service:
            address = image_address(json.loads(fetcher.document(f"{canvas.image}/info.json")), canvas.image, side)
        body = fetcher.image(address)
    except InvalidInputError:  # the limit of bytes
        raise
    except (FetchError, ValueError, KeyError, TypeError, RecursionError) as error:
        return (
            str(error) if isinstance(error, FetchError) else f"{canvas.image[:200]} has no info.json that can be read."
        )
    disk.make_folder(file.parent)
    _replace(file, body)
    return {**data, "bytes": len(body)}


def image_address(info: Any, service: str, side: int) -> str:
    """Return the address of an image of about `side` pixels, by what its service says that it can do."""
    if not isinstance(info, dict):
        raise TypeError("no object")
    width, height = (int(info[name]) for name in ("width", "height"))
    if width <= 0 or height <= 0:
        raise ValueError("no size")
    is_new = "image/3" in str(info.get("@context"))
    profile = str(info.get("profile"))
    scale = min(1.0, side / max(width, height))
    for name, length in (("maxWidth", width), ("maxHeight", height)):
        if isinstance(info.get(name), int):
            scale = min(scale, info[name] / length)
    wanted = max(1, round(width * scale))
    if "level0" in profile and "sizeByW" not in json.dumps(info):
        sizes = sorted(
            (int(size["width"]), int(size["height"])) for size in info.get("sizes") or [] if isinstance(size, dict)
        )
        if not sizes:
            return f"{service}/full/{'max' if is_new else 'full'}/0/default.jpg"
        chosen = next((size for size in sizes if size[0] >= wanted), sizes[-1])
        return f"{service}/full/{chosen[0]},{chosen[1] if is_new else ''}/0/default.jpg"
    if wanted == width and not is_new:
        return f"{service}/full/full/0/default.jpg"
    return f"{service}/full/{'max' if wanted == width else f'{wanted},'}/0/default.jpg"


def _key(canvas: Canvas) -> str:
    """Return the name of a photo: its label in plain letters, and enough of a hash of where it is from."""
    folder = _slug(urlsplit(canvas.manifest).path.removesuffix("/manifest.json").removesuffix("/manifest"))
    label = _slug(canvas.label)
    digest = hashlib.sha256(f"{canvas.canvas} {canvas.place} {canvas.image}".encode()).hexdigest()[:10]
    parent = hashlib.sha256(canvas.manifest.encode()).hexdigest()[:8]
    return f"{folder}-{parent}/{label}-{digest}.jpg".replace("/-", "/").lstrip("-")


def _slug(text: str) -> str:
    """Return a text in characters that every file system takes."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text)
    return "-".join(filter(None, plain.split("-")))[-LONGEST_LABEL:].strip("-")


def _open_folder(folder: Path, address: str) -> dict[str, dict[str, Any]]:
    """Return the photos that the folder has of this address; make it where it is missing."""
    file = folder / CANVASES
    if file.exists():
        stored = _read(file)
        if stored["source"] != address:
            raise InvalidInputError(
                f"{folder} mirrors {stored['source'][:200]}; choose another -o.", code="other-source"
            )
        photos: dict[str, dict[str, Any]] = stored["photos"]
        return photos
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInputError(f"{folder} has files of its own; choose another -o.", code="folder-in-use")
    disk.make_folder(folder)
    return {}


def _read(file: Path) -> dict[str, Any]:
    """Return a file that `_write` wrote, checked: it may come from anybody."""
    try:
        stored = json.loads(disk.read(file, MAX_BYTES))
        usable = stored["format"] == FORMAT and isinstance(stored["source"], str)
        usable &= all(_is_entry(key, entry) for key, entry in stored["photos"].items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        usable = False
    if not usable:
        raise DamagedError(f"{file} is damaged; remove it and run manifind index with the manifest's address again.")
    checked: dict[str, Any] = stored
    return checked


def _is_entry(key: str, entry: Any) -> bool:
    texts = all(isinstance(entry[name], str) for name in ("canvas", "manifest", "label", "image"))
    numbers = len(entry["place"]) == 4 and all(isinstance(value, int | float) for value in entry["place"])
    parts = key.split("/")
    inside = len(parts) <= 2 and all(part and not part.startswith(".") and "\\" not in part for part in parts)
    return texts and numbers and inside and isinstance(entry["bytes"], int)


def _write(folder: Path, address: str, photos: dict[str, dict[str, Any]]) -> None:
    text = json.dumps({"format": FORMAT, "source": address, "photos": dict(sorted(photos.items()))}, indent=1)
    _replace(folder / CANVASES, text.encode())


def _replace(file: Path, content: bytes) -> None:
    """Write a file in one step: it has its old content, or all of the new."""
    draft = file.with_name(f".{file.name}.part")
    disk.remove(draft)
    disk.write(draft, [content])
    disk.replace(draft, file)
