"""A photo as one row of bytes, and the rows of a shortlist as arrays.

A row holds all that a search needs of a photo: its regions (descriptors in half precision, boxes, pooling weights), the
edges of the graph that begin at them, and what the catalogue says. An edge names the photo that it leads to by the
photo's number in the store, which depends on the photo's key alone (`photo_number`). So the rows of other photos stay
as they are when photos come and go, unless the edges themselves change.

A row is a head, plain little-endian arrays, and a text in JSON, which is read when somebody looks at the photo.
"""

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import DamagedError, InvalidInputError
from manifind.geometry.packing import FEATURE_BYTES, Packed
from manifind.types import FloatArray

MAGIC, FEATURES = b"mfp1", b"mff1"
HEADER = struct.Struct("<4sIHHIIQ")
"""The magic, length, dimensions, regions, neighbouring photos, edges, and of the content's hash the first bytes."""

MAX_ROW_REGIONS = 2**16 - 1
"""Regions, and neighbouring photos, that a row has room for."""

Numbers = npt.NDArray[np.int64]
HalfArray = npt.NDArray[np.float16]


def photo_number(key: str) -> int:
    """Return the number by which a store knows a photo: 63 bits of a hash of its key."""
    return _number(key.encode("utf-8", "surrogateescape"))


def row_number(photo: int, generation: int) -> int:
    """Return the number of the row that a photo got in a generation."""
    return _number(struct.pack("<qq", photo, generation))


def blob_number(row: int) -> int:
    """Return the number of what lies beside a row, where a store keeps both alike."""
    return row_number(row, -1)


def content_number(sha256: str) -> int:
    """Return what a row keeps of a photo's content to recognise it by."""
    return int(sha256[:16], 16)


def _number(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of the graph that begin at the regions of some photos."""

    counts: npt.NDArray[np.int32]
    """How many begin at each region."""
    photos: Numbers
    """The photo that each leads to."""
    regions: npt.NDArray[np.int32]
    """Which region of that photo."""
    affinities: FloatArray
    """Of the pair of regions, before normalisation."""


@dataclass(frozen=True, eq=False)
class PackedPhoto:
    """What a row holds."""

    vectors: HalfArray
    boxes: FloatArray
    weights: FloatArray
    edges: Edges
    metadata: dict[str, Any]
    """Of the catalogue: key, sha256, bytes, mtime_ns, width, height, and the keys of identical files."""


def pack(photo: PackedPhoto) -> bytes:
    """Return the row of a photo."""
    regions, d = photo.vectors.shape
    edges = photo.edges
    # Edges in the order of the photos they lead to: then columns ascend in every shortlist.
    owner = np.repeat(np.arange(regions), edges.counts)
    order = np.lexsort((edges.regions, edges.photos, owner))
    table, place = np.unique(edges.photos[order], return_inverse=True)
    if max(regions, len(table)) > MAX_ROW_REGIONS:
        raise InvalidInputError(
            f"a photo has {regions} regions and {len(table)} neighbouring photos, and a row has room for "
            f"{MAX_ROW_REGIONS}; "
            "make the index with a smaller k, or with --regions-per-image 5.",
            code="row-too-large",
        )
    parts = [
        table.astype("<i8"),
        photo.boxes.astype("<f4"),
        photo.weights.astype("<f4"),
        edges.affinities[order].astype("<f4"),
        photo.vectors.astype("<f2"),
        edges.counts.astype("<u2"),
        place.astype("<u2"),
        edges.regions[order].astype("<u2"),
    ]
    body = b"".join(part.tobytes() for part in parts) + json.dumps(photo.metadata, separators=(",", ":")).encode()
    content = content_number(photo.metadata["sha256"])
    return HEADER.pack(MAGIC, HEADER.size + len(body), d, regions, len(table), len(place), content) + body


def pack_features(rows: Packed) -> bytes:
    """Return the local features of a photo as they lie beside its row; a photo that has none has a head alone."""
    return FEATURES + np.ascontiguousarray(rows).tobytes()


def unpack_features(content: bytes) -> Packed:
    """Read the local features of a photo, or raise `DamagedError`."""
    if not content.startswith(FEATURES) or (len(content) - len(FEATURES)) % FEATURE_BYTES:
        raise _row_error("its features are none, or were cut short")
    return np.frombuffer(content, np.uint8, offset=len(FEATURES)).reshape(-1, FEATURE_BYTES)


def digest(row: bytes) -> int:
    """Return 63 bits that tell a row from another."""
    return _number(row)


@dataclass(frozen=True, eq=False)
class Unpacked:
    """The rows of some photos as arrays, in the order in which they were given."""

    rows: Sequence[bytes]
    regions: Numbers
    """How many regions each photo has."""
    contents: npt.NDArray[np.uint64]
    """The first bytes of the hash of each photo's content."""
    vectors: HalfArray
    boxes: FloatArray
    weights: FloatArray
    edges: Edges
    texts: Numbers
    """Where the text of each row begins."""

    def metadata(self, place: int) -> dict[str, Any]:
        """Return what the catalogue says of a photo."""
        try:
            metadata = json.loads(self.rows[place][int(self.texts[place]) :])
        except ValueError as error:
            raise _row_error("its text cannot be read") from error
        if not isinstance(metadata, dict):
            raise _row_error("its text says nothing")
        return metadata


def unpack(rows: Sequence[bytes]) -> Unpacked:
    """Read rows of photos; what does not fit together is `DamagedError`."""
    try:
        heads = [HEADER.unpack_from(row) for row in rows]
    except struct.error as error:
        raise _row_error("it has no head") from error
    facts = np.array([head[1:6] for head in heads], np.int64).reshape(-1, 5)
    lengths, dimensions, regions, tables, edges = facts.T
    if any(head[0] != MAGIC for head in heads) or (lengths != [len(row) for row in rows]).any():
        raise _row_error("its head is none, or it was cut short")
    if len(rows) and (dimensions != dimensions[0]).any():
        raise _row_error("it has descriptors of another size than others")
    d = int(dimensions[0]) if len(rows) else 0
    sizes = np.stack(
        [8 * tables, 16 * regions, 4 * regions, 4 * edges, 2 * d * regions, 2 * regions, 2 * edges, 2 * edges]
    )
    ends = HEADER.size + np.cumsum(sizes, axis=0)
    starts = ends - sizes
    if (ends[-1] > lengths).any():
        raise _row_error("it is shorter than its head says")

    def gather(part: int, kind: str) -> npt.NDArray[Any]:
        width = np.dtype(kind).itemsize
        pieces = [
            np.frombuffer(row, kind, count, start)
            for row, count, start in zip(rows, (sizes[part] // width).tolist(), starts[part].tolist(), strict=True)
        ]
        return np.concatenate(pieces) if pieces else np.empty(0, kind)

    table, place = gather(0, "<i8"), gather(6, "<u2").astype(np.int64)
    if (place >= np.repeat(tables, edges)).any():
        raise _row_error("an edge leads to no photo")
    counts = gather(5, "<u2").astype(np.int32)
    owners = np.repeat(np.arange(len(rows)), regions)
    if (np.bincount(owners, weights=counts, minlength=len(rows)).astype(np.int64) != edges).any():
        raise _row_error("its regions have other edges than it has")
    photos = table[place + np.repeat(np.cumsum(tables) - tables, edges)]
    all_edges = Edges(counts, photos, gather(7, "<u2").astype(np.int32), gather(3, "<f4"))
    return Unpacked(
        rows,
        regions,
        np.array([head[6] for head in heads], np.uint64),
        gather(4, "<f2").reshape(-1, d),
        gather(1, "<f4").reshape(-1, 4),
        gather(2, "<f4"),
        all_edges,
        ends[-1],
    )


def _row_error(why: str) -> DamagedError:
    return DamagedError(f"a packed row cannot be read: {why}; publish the collection again.", code="packed-row")
