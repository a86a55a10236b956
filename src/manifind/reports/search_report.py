"""A search report that stands by itself: what was asked and found, with checksums, and a check that repeats it.

The folder of a report holds

- ``report.json``: the query, the options, the results with the SHA-256 of every file, the versions, the configuration
  and its hash, the snapshot of the index, and when it was made;
- ``index.html``: the same for people, with the pictures;
- the query's photos, byte for byte;
- ``SHA256SUMS``: the checksums of these files, as ``sha256sum --check`` reads them.

`verify_report` compares the checksums, compares the photos of the collection with theirs, searches again with the same
photos and options, and says what differs. A report may come from anybody: sizes are bounded, names lead nowhere out of
its folder, and it names no index to open.
"""

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata as packages
from pathlib import Path
from typing import Any

from manifind.errors import InvalidInputError, ManifindError, UnreadableImageError
from manifind.index import Index, SearchResult
from manifind.io import content_hash, key_to_path, open_regular
from manifind.io.video import is_photo_there, split_frame_key
from manifind.reports.html import render
from manifind.reports.metadata import Metadata
from manifind.reports.results import hit_data
from manifind.reports.search import found_words, hit_pictures, query_picture, rule_words
from manifind.reports.text import visible
from manifind.version import VERSION

REPORT, PAGE, SUMS = "report.json", "index.html", "SHA256SUMS"
FORMAT = 1
MAX_BYTES = 50_000_000
"""Of a report's JSON and list of checksums."""
MAX_PHOTO_BYTES = 1_000_000_000
"""Of a query's photo, of all photos of a query together, and of the page."""
MAX_VIEWS = 100
SCORE_TOLERANCE = 1e-3
"""Scores that differ by a smaller part are the same: processors round differently."""
BOX_TOLERANCE = 1.0
"""Pixels."""
LIBRARIES = ("numpy", "scipy", "faiss-cpu", "onnxruntime", "pillow")
OPTIONS: dict[str, type] = {
    "top": int,
    "method": str,
    "verify": int,
    "expand": bool,
    "mirrored": bool,
    "folder": str,
    "since": str,
    "until": str,
    "keys": list,
}
"""Of `Index.search`, those that a report keeps."""

View = tuple[str, Sequence[float] | None]


@dataclass
class Comparison:
    """What a check of a report came to."""

    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What has changed and need not matter: the version, the snapshot."""


def write_report(
    folder: Path,
    index: Index,
    views: Sequence[View],
    negatives: Sequence[View],
    options: Mapping[str, Any],
    result: SearchResult,
    metadata: Metadata | None = None,
) -> None:
    """Write a report of a search to a folder, which must be new or empty."""
    if not result.complete:
        raise InvalidInputError("a report needs a complete search; leave the deadline out.", code="incomplete")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(f"{folder} is there already; give a new folder for the report.", code="not-empty")
    photos = [(*_photo_bytes(index, image), box) for image, box in [*views, *negatives]]
    folder.mkdir(parents=True, exist_ok=True)
    query_files = []
    for number, (name, data, box) in enumerate(photos, 1):
        suffix = match[0].lower() if (match := re.search(r"\.[A-Za-z0-9]{1,5}$", name)) else ""
        file = f"query-{number}{suffix}"
        (folder / file).write_bytes(data)
        query_files.append({"file": file, "name": name, "sha256": hashlib.sha256(data).hexdigest(), "box": box})
    facts = {
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "manifind": VERSION,
        "machine": {"python": platform.python_version(), "system": platform.platform(), **_libraries()},
        "index": _index_facts(index),
        "config": result.config.config_hash,
        "views": query_files[: len(views)],
        "negatives": query_files[len(views) :],
        "options": {name: options[name] for name in OPTIONS if options.get(name) is not None},
        "n_matches": result.n_matches,
        "results": [_result_facts(index, entry) for entry in (hit_data(hit, metadata) for hit in result)],
    }
    (folder / REPORT).write_text(json.dumps(facts, indent=2), encoding="utf-8")
    (folder / PAGE).write_text(_page(index, views, result, metadata, facts), encoding="utf-8")
    names = sorted([PAGE, REPORT, *(str(entry["file"]) for entry in query_files)])
    lines = [f"{content_hash(folder / name)}  {name}\n" for name in names]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def _page(
    index: Index, views: Sequence[View], result: SearchResult, metadata: Metadata | None, facts: Mapping[str, Any]
) -> str:
    info = facts["index"]
    options = ", ".join(f"{name} {value}" for name, value in facts["options"].items() if name != "keys")
    rows = [
        ("made", facts["made"]),
        ("by", f"manifind {facts['manifind']}"),
        ("search configuration", facts["config"]),
        ("index", f"{info['photos']} photos, generation {info['generation']}, snapshot {info['snapshot']}"),
        ("index configuration", info["config"]),
        ("network", info["network"]),
        ("options", options),
    ]
    hashes = [(visible(entry["name"]), entry["sha256"]) for entry in [*facts["views"], *facts["negatives"]]]
    hashes += [(visible(entry["key"]), entry["sha256"]) for entry in facts["results"]]
    return render(
        "report.html",
        title="Report of a search",
        subtitle=f"{result.method}, among {len(index)} photos of {index.root}",
        views=[query_picture(index, *view) for view in views],
        heading=found_words(result),
        found=hit_pictures(index, result, metadata),
        rule=rule_words(result),
        rows=rows,
        hashes=hashes,
    )


def verify_report(folder: Path, index: Index) -> Comparison:
    """Repeat the search of a report on an index, and return what differs."""
    comparison = Comparison()
    _verify_sums(folder, comparison)
    facts = _read_facts(folder)
    files: dict[str, tuple[bytes, str]] = {}
    views, negatives = (_read_views(folder, facts, name, files, comparison) for name in ("views", "negatives"))
    reported = _checked(facts, "results", list)
    if not all(isinstance(entry, dict) and _is_text(entry.get("key")) for entry in reported):
        raise _wrong(folder, "results has a photo without a key")
    if len({entry["key"] for entry in reported}) < len(reported):
        raise _wrong(folder, "results has a photo twice")
    for entry in reported:
        _verify_photo(index, entry, comparison)
    options = _checked(facts, "options", dict)
    for name, value in options.items():
        listed = value if isinstance(value, list) else []
        if not isinstance(value, OPTIONS.get(name, ())) or not all(_is_text(key) for key in listed):
            raise _wrong(folder, f"option {name[:40]!r} is none of a search")
    before, now = _checked(facts, "index", dict), _index_facts(index)
    for name in ("snapshot", "photos", "config", "network"):
        if before.get(name) != now[name]:
            comparison.notes.append(f"the index's {name} was {before.get(name)} and is {now[name]}")
    if facts.get("manifind") != VERSION:
        comparison.notes.append(f"it was made by manifind {facts.get('manifind')}; this is {VERSION}")
    if facts.get("config") != index.config.config_hash:
        comparison.notes.append(f"the search configuration was {facts.get('config')} and is {index.config.config_hash}")
    (image, box), *others = views
    try:
        result = index.search(image, box, positives=others, negatives=negatives, **options).nonzero()
    except (ManifindError, TypeError) as error:
        comparison.differences.append(f"the search cannot be repeated: {error}")
        return comparison
    _compare(facts.get("n_matches"), reported, result, comparison)
    return comparison


def _compare(n_matches: object, reported: Sequence[Any], result: SearchResult, comparison: Comparison) -> None:
    """Compare the results of the repeated search with those of the report."""
    if n_matches != result.n_matches:
        comparison.differences.append(f"{n_matches} photos matched; {result.n_matches} match now")
    if len(reported) != len(result):
        comparison.differences.append(f"{len(reported)} photos were found; {len(result)} are found now")
    for before, hit in zip(reported, result, strict=False):
        now = json.loads(json.dumps(hit_data(hit)))
        names = ("key", "is_match", "verified", "grade", *(("mirrored",) if result.mirrored else ()))
        differing = [name for name in names if before.get(name) != now[name]]
        if not _near(before.get("score"), now["score"], SCORE_TOLERANCE * abs(hit.score)):
            differing.append("score")
        if not _near_box(before.get("box"), now["box"]):
            differing.append("box")
        comparison.differences += [
            f"rank {hit.rank}: {name} was {before.get(name)} and is {now[name]}" for name in differing
        ]


def _verify_sums(folder: Path, comparison: Comparison) -> None:
    """Compare the files of a report with its list of checksums."""
    listed = set()
    for line in _read_bounded(folder, SUMS).decode("utf-8", "replace").splitlines():
        match = re.fullmatch(r"([0-9a-f]{64}) [ *]([\w.-]{1,100})", line, re.ASCII)
        if match is None or match[2] in listed:
            raise _wrong(folder, f"{SUMS} has a line that is no checksum of a file of the report, or one twice")
        listed.add(match[2])
        try:
            if _hash(folder / match[2], folder) != match[1]:
                comparison.differences.append(f"{match[2]} is not the file that the report was written with")
        except UnreadableImageError as error:
            comparison.differences.append(f"{match[2]} cannot be read: {error.reason}")
    if missing := {PAGE, REPORT} - listed:
        comparison.differences.append(f"{SUMS} does not list {sorted(missing)[0]}")


def _verify_photo(index: Index, entry: Mapping[str, Any], comparison: Comparison) -> None:
    """Compare a photo of the collection with its checksum in the report."""
    record = index.catalogue.photo_of(entry["key"])
    if record is None:
        comparison.differences.append(f"{entry['key']} is not in the index any more")
        return
    try:
        frame = split_frame_key(record.key)
        now = record.sha256 if frame is not None else content_hash(key_to_path(index.root, record.key))
    except ManifindError as error:
        comparison.differences.append(f"{entry['key']} cannot be read: {error}")
        return
    if now != entry.get("sha256"):
        comparison.differences.append(
            f"{entry['key']} is another file now: its SHA-256 was {entry.get('sha256')} and is {now}"
        )


def _read_facts(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads(_read_bounded(folder, REPORT))
    except (ValueError, RecursionError) as error:
        raise _wrong(folder, f"{REPORT} is no JSON") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise _wrong(folder, f"{REPORT} is of another format")
    return facts


def _read_views(
    folder: Path, facts: Mapping[str, Any], name: str, files: dict[str, tuple[bytes, str]], comparison: Comparison
) -> list[tuple[bytes, list[float] | None]]:
    """Return the query's photos, as they lie in the report's folder, with their boxes.

    `files` are those that were read so far, with their checksums.
    """
    views: list[tuple[bytes, list[float] | None]] = []
    given = _checked(facts, name, list)
    if len(given) > MAX_VIEWS or (name == "views" and not given):
        raise _wrong(folder, f"{name} has {len(given)} photos")
    for view in given:
        file, box = (view.get("file"), view.get("box")) if isinstance(view, dict) else (None, None)
        if not isinstance(file, str) or not re.fullmatch(r"query-\d{1,4}(\.[a-z0-9]{1,5})?", file, re.ASCII):
            raise _wrong(folder, f"{name} names a file that is no photo of the report")
        if box is not None and not (
            isinstance(box, list) and len(box) == 4 and all(isinstance(side, int | float) for side in box)
        ):
            raise _wrong(folder, f"{file} has a box that is none")
        if file not in files:
            left = MAX_PHOTO_BYTES - sum(len(known) for known, _ in files.values())
            with open_regular(folder / file, root=folder) as stream:
                data = stream.read(left + 1)
            if len(data) > left:
                raise _wrong(folder, f"its photos have more than {MAX_PHOTO_BYTES // 10**6} million bytes")
            files[file] = data, hashlib.sha256(data).hexdigest()
        data, sha256 = files[file]
        if sha256 != view.get("sha256"):
            comparison.differences.append(f"{file} is not the photo that was searched with")
        views.append((data, box))
    return views


def _checked(facts: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(facts.get(name), kind):
        raise InvalidInputError(f"{REPORT} has no {name}; it was not written by manifind.", code="no-report")
    return facts[name]


def _is_text(value: object) -> bool:
    """Say whether it is text that can be stored: JSON may hold halves of characters."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _read_bounded(folder: Path, name: str) -> bytes:
    try:
        with open_regular(folder / name, root=folder) as stream:
            data = stream.read(MAX_BYTES + 1)
    except UnreadableImageError as error:
        raise _wrong(folder, f"{name} cannot be read: {error.reason}") from error
    if len(data) > MAX_BYTES:
        raise _wrong(folder, f"{name} has more than {MAX_BYTES // 10**6} million bytes")
    return data


def _hash(file: Path, root: Path) -> str:
    with open_regular(file, root=root) as stream:
        if os.fstat(stream.fileno()).st_size > MAX_PHOTO_BYTES:
            raise UnreadableImageError(f"more than {MAX_PHOTO_BYTES // 10**6} million bytes", code="too-large")
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _wrong(folder: Path, what: str) -> InvalidInputError:
    return InvalidInputError(f"{folder} is no report: {what}; give a folder that --report wrote.", code="no-report")


def _photo_bytes(index: Index, image: str) -> tuple[str, bytes]:
    """Return the name and the bytes of a query's photo."""
    path = Path(image)
    if not is_photo_there(image):
        record = index.find(image)
        if record is None:
            raise InvalidInputError(f"{image!r} is neither a file nor a key of the collection.", code="unknown-key")
        path = key_to_path(index.root, record.key)
    if split_frame_key(path.name) is not None and not path.exists():
        raise InvalidInputError("a report needs the file of a photo; save the frame of the film as one.", code="frame")
    with open_regular(path) as stream:
        return path.name, stream.read(MAX_PHOTO_BYTES)


def _index_facts(index: Index) -> dict[str, Any]:
    info = index.info()
    return {
        "generation": info["generation"],
        "snapshot": getattr(index.state, "stamp", None),
        "photos": info["photos"],
        "made_by": info["made_by"],
        "config": info["config_hash"],
        "network": f"{info['extractor']['name']} {info['extractor']['sha256']}",
    }


def _result_facts(index: Index, hit: dict[str, Any]) -> dict[str, Any]:
    record = index.catalogue.photo_of(hit["key"])
    if record is None:
        return {**hit, "sha256": None}
    changed = datetime.fromtimestamp(record.mtime_ns / 1e9, UTC).isoformat(timespec="seconds")
    return {**hit, "sha256": record.sha256, "bytes": record.bytes, "changed": changed}


def _libraries() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = packages.version(name)
        except packages.PackageNotFoundError:
            continue
    return versions


def _near(before: object, now: float, tolerance: float) -> bool:
    try:
        return isinstance(before, int | float) and math.isclose(before, now, rel_tol=0, abs_tol=tolerance)
    except OverflowError:  # JSON has whole numbers of any size
        return False


def _near_box(before: object, now: Sequence[float] | None) -> bool:
    if before is None or now is None:
        return before is None and now is None
    return (
        isinstance(before, list)
        and len(before) == 4
        and all(_near(one, other, BOX_TOLERANCE) for one, other in zip(before, now, strict=True))
    )
