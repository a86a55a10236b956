"""Check an index: every checksum, and every invariant.

A problem says what is damaged, what is wrong with it, and what would repair it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from manifind.checks import UNIT_TOLERANCE
from manifind.errors import DamagedError, FormatVersionError, InvalidInputError
from manifind.graph import NO_NEIGHBOUR, Neighbours
from manifind.index.storage.manifest import read_manifest
from manifind.index.storage.snapshot import CATALOGUE, Snapshot
from manifind.io import key_to_path
from manifind.io.files import modified_ns
from manifind.io.video import containing_file
from manifind.ranking import pooling_weights
from manifind.storage import store
from manifind.types import StageProgress

DESCRIPTOR_FILES = (CATALOGUE, "vectors.npy", "boxes.npy", "images.npy", "starts.npy")
"""The files that are made from the photos alone. All other files can be made from these."""
WHITENING = ("whitening_mean.npy", "whitening_project.npy")
LOCAL = ("features.npy", "feature_starts.npy")


class Remedy(StrEnum):
    """What would mend a problem."""

    REBUILD_GRAPH = "rebuild-graph"
    EXTRACT = "extract"
    RESTORE_WHITENING = "restore-whitening"
    REBUILD_INDEX = "rebuild-index"
    SYNC = "sync"
    MOVE = "move"

    @property
    def is_for_damage(self) -> bool:
        """Whether the index is damaged, and not merely behind its photos."""
        return self not in (Remedy.SYNC, Remedy.MOVE)


SENTENCES = {
    Remedy.REBUILD_GRAPH: "manifind index PHOTOS --repair builds it again from the descriptors",
    Remedy.EXTRACT: "manifind index PHOTOS --repair extracts the descriptors again",
    Remedy.RESTORE_WHITENING: "manifind index PHOTOS --repair restores it, or trains it again",
    Remedy.REBUILD_INDEX: "make the index again",
    Remedy.SYNC: "manifind index PHOTOS brings the index up to date",
    Remedy.MOVE: "manifind index PHOTOS -o INDEX follows it",
}
"""What people are told to do."""

ROWS = 2**14
MAX_SHOWN = 20
"""How many photos are named at most, of those that share a problem."""


@dataclass(frozen=True)
class Problem:
    """Something that is not as it should be."""

    what: str
    """A file of the index, or a photo."""
    wrong: str
    remedy: Remedy

    @property
    def is_damage(self) -> bool:
        """Whether the index is damaged, and not merely behind its photos."""
        return self.remedy.is_for_damage

    def to_dict(self) -> dict[str, str]:
        """Return the problem ready for JSON, with the sentence that says what to do."""
        return {"what": self.what, "wrong": self.wrong, "remedy": self.remedy.value, "repair": SENTENCES[self.remedy]}

    def __str__(self) -> str:
        return f"{self.what}: {self.wrong}; {SENTENCES[self.remedy]}."


def check(path: Path, progress: StageProgress | None = None) -> list[Problem]:
    """Look for everything that can be wrong with the index at `path`, as it is when nobody has changed it meanwhile."""
    while True:
        before = _stamp(path)
        problems = _check(path, progress or (lambda *_: None))
        if _stamp(path) == before:
            return problems


def _stamp(path: Path) -> str | None:
    try:
        return str(read_manifest(path)["stamp"])
    except DamagedError:
        return None


def _check(path: Path, report: StageProgress) -> list[Problem]:
    try:
        manifest = read_manifest(path)
    except FormatVersionError:
        raise
    except DamagedError as error:
        copies = [name for name in store.copies_of_manifest(path) if _readable(path, name)]
        remedy = Remedy.REBUILD_GRAPH if copies else Remedy.REBUILD_INDEX
        return [Problem(store.MANIFEST, error.problem.rstrip("."), remedy)]
    problems = damaged_files(path, manifest, report)
    if problems:
        return problems
    try:
        snapshot = Snapshot.read(path)
        snapshot.manifold.check_ids()
        _check_catalogue(snapshot)
    except DamagedError as error:
        return [Problem(str(path), error.problem.rstrip("."), Remedy.EXTRACT)]
    return [
        *_check_graph(snapshot, report),
        *_check_descriptors(snapshot, report),
        *_check_local_features(snapshot),
        *_check_photos(snapshot, report),
    ]


def _check_catalogue(snapshot: Snapshot) -> None:
    """Read all of the catalogue, which says by itself where a row of it is none."""
    numbers = [image.number for image in snapshot.catalogue.images]
    _ = snapshot.catalogue.skipped
    if numbers != list(range(len(snapshot.manifold.layout_.images))):
        raise DamagedError(f"{CATALOGUE} does not have all photos")


def damaged_files(path: Path, manifest: dict[str, Any], report: StageProgress) -> list[Problem]:
    """Compare every file with the manifest: its size, its checksum, and whether it is what its name says."""
    problems = []
    files = manifest["files"]
    for done, (name, listed) in enumerate(files.items(), 1):
        try:
            store.open_file(path / listed["file"], listed, verify=True)
        except store.DamagedFileError as error:
            remedy = Remedy.REBUILD_GRAPH
            if name in WHITENING:
                remedy = Remedy.RESTORE_WHITENING
            elif name in (*DESCRIPTOR_FILES, *LOCAL):
                remedy = Remedy.EXTRACT
            problems.append(Problem(listed["file"], error.wrong, remedy))
        report("checksums", done, len(files))
    return problems


def _readable(path: Path, name: str) -> bool:
    try:
        return bool(read_manifest(path, name))
    except DamagedError:
        return False


def _check_graph(snapshot: Snapshot, report: StageProgress) -> Iterator[Problem]:
    manifold = snapshot.manifold
    S, lists = manifold.S_, manifold.lists_
    report("graph", 0, 1)
    n = S.shape[0]
    if not np.isfinite(S.data).all() or (S.data <= 0).any():
        yield Problem("S_data", "an affinity is not a positive number", Remedy.REBUILD_GRAPH)
    if len(S.indices) and (S.indices == np.repeat(np.arange(n), np.diff(S.indptr))).any():
        yield Problem("S_indices", "a region is its own neighbour", Remedy.REBUILD_GRAPH)
    mirrored = sp.csr_array(S.T)
    mirrored.sort_indices()
    if not all(
        np.array_equal(a, b)
        for a, b in ((S.indptr, mirrored.indptr), (S.indices, mirrored.indices), (S.data, mirrored.data))
    ):
        yield Problem("S", "the affinity is not symmetric", Remedy.REBUILD_GRAPH)
    if (manifold.degrees_ < 0).any() or ((manifold.degrees_ > 0) != (np.diff(S.indptr) > 0)).any():
        yield Problem("degrees", "a degree does not fit the region's edges", Remedy.REBUILD_GRAPH)
    yield from _check_lists(lists, min(int(manifold.k), n - 1))
    report("graph", 1, 1)


def _check_lists(lists: Neighbours, k: int) -> Iterator[Problem]:
    n = len(lists.ids)
    for start in range(0, n, ROWS):
        ids, similarities = lists.ids[start : start + ROWS], lists.similarities[start : start + ROWS]
        rows = np.arange(start, start + len(ids))[:, None]
        if len(ids) and ids.size and (ids.min() < NO_NEIGHBOUR or ids.max() >= n or (ids == rows).any()):
            yield Problem(
                "neighbour_ids", "an id leads out of the collection, or to the region itself", Remedy.REBUILD_GRAPH
            )
            return
        falls = similarities[:, 1:] > similarities[:, :-1] + 1e-6
        gaps = (ids == NO_NEIGHBOUR) != np.isneginf(similarities)
        if falls.any() or gaps.any() or (ids[:, :k] == NO_NEIGHBOUR).any():
            yield Problem("neighbour_similarities", "a list is not in order, or too short", Remedy.REBUILD_GRAPH)
            return


def _check_descriptors(snapshot: Snapshot, report: StageProgress) -> Iterator[Problem]:
    manifold, n = snapshot.manifold, len(snapshot.boxes)
    X, layout = manifold.vectors_, manifold.layout_
    for start in range(0, n, ROWS):
        block = X[start : start + ROWS].astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", block, block))
        if not (np.abs(norms - 1) <= UNIT_TOLERANCE).all():
            yield Problem("vectors", "a descriptor is not of unit norm", Remedy.EXTRACT)
            return
        report("descriptors", min(start + ROWS, n), n)
    expected = pooling_weights(manifold.pooling, X, layout, float(manifold.gmp_lambda))
    if not np.allclose(manifold.weights_, expected, atol=1e-4):
        yield Problem("weights", "a pooling weight is not that of the region", Remedy.REBUILD_GRAPH)
    sizes = np.array([(image.width, image.height) for image in snapshot.catalogue.images], np.float32)
    room = np.repeat(sizes, layout.counts, axis=0)
    low, high = snapshot.boxes[:, :2], snapshot.boxes[:, 2:]
    if not ((low >= -1) & (low < high) & (high <= room + 1)).all():
        yield Problem("boxes", "a region lies outside of its photo", Remedy.EXTRACT)


def _check_local_features(snapshot: Snapshot) -> Iterator[Problem]:
    """Look at where the local features of each photo lie, and at whether there are as many as there may be."""
    if snapshot.local is None:
        return
    counts = np.diff(snapshot.local.starts)
    if (counts < 0).any() or (counts > snapshot.local.keeping.max_keypoints).any():
        yield Problem("features", "a photo has fewer than no local features, or more than are kept", Remedy.EXTRACT)


def _check_photos(snapshot: Snapshot, report: StageProgress) -> Iterator[Problem]:
    """Compare the photos' files with what the index knows of them."""
    root = snapshot.manifest.root
    if not root.is_dir():
        yield Problem(str(root), "the folder of the photos is not there", Remedy.MOVE)
        return
    images = snapshot.catalogue.images
    wrong = []
    for done, image in enumerate(images, 1):
        try:
            status = containing_file(key_to_path(root, image.key)).stat()
            if (status.st_size, modified_ns(status)) != (image.bytes, image.mtime_ns):
                wrong.append(Problem(image.key, "the photo has changed since", Remedy.SYNC))
        except (OSError, InvalidInputError):
            wrong.append(Problem(image.key, "the photo is gone", Remedy.SYNC))
        report("photos", done, len(images))
    yield from wrong[:MAX_SHOWN]
    if len(wrong) > MAX_SHOWN:
        yield Problem(f"{len(wrong) - MAX_SHOWN} more photos", "gone or changed since", Remedy.SYNC)
