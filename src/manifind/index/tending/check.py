"""Is an index whole? Every checksum, and everything that holds of an index whatever is in it.

A problem says what is damaged, what is wrong with it, and what would repair it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from manifind.checks import UNIT_TOLERANCE
from manifind.describe import key_to_path
from manifind.describe.films import file_of
from manifind.errors import Damaged, InvalidInput, OtherFormat
from manifind.graph import NOBODY, Neighbours
from manifind.index.state.generation import CATALOGUE, Generation
from manifind.index.state.manifest import FORMAT, KIND
from manifind.ranking import pooling_weights
from manifind.storage import store
from manifind.types import StageProgress

DESCRIPTIONS = (CATALOGUE, "vectors.npy", "boxes.npy", "images.npy", "starts.npy")
"""The files that are made from the photos alone. All other files can be made from these."""
WHITENING = ("whitening_mean.npy", "whitening_project.npy")
LOCAL = ("features.npy", "feature_starts.npy")

BY_GRAPH = "manifind index PHOTOS --repair builds it anew from the descriptions"
BY_PHOTOS = "manifind index PHOTOS --repair describes the photos again"
BY_WHITENING = "manifind index PHOTOS --repair puts it back, or learns it again where it was learnt"
BY_SYNC = "manifind index PHOTOS brings the index up to date"
BY_HAND = "make the index again"

ROWS = 2**14
MOST_SHOWN = 20
"""How many photos are named at most, of those that share a problem."""


@dataclass(frozen=True)
class Problem:
    """Something that is not as it should be."""

    what: str
    """A file of the index, or a photo."""
    wrong: str
    repair: str

    @property
    def damage(self) -> bool:
        """Whether the index is damaged, not merely behind its photos."""
        return self.repair in (BY_GRAPH, BY_PHOTOS, BY_WHITENING, BY_HAND)

    def __str__(self) -> str:
        return f"{self.what}: {self.wrong}; {self.repair}."


def check(path: Path, progress: StageProgress | None = None) -> list[Problem]:
    """Look for everything that can be wrong with the index at `path`, as it is when nobody has changed it meanwhile."""
    while True:
        before = _stamp(path)
        problems = _check(path, progress or (lambda *_: None))
        if _stamp(path) == before:
            return problems


def _stamp(path: Path) -> str | None:
    try:
        return str(store.read_manifest(path, KIND, FORMAT)["stamp"])
    except Damaged:
        return None


def _check(path: Path, report: StageProgress) -> list[Problem]:
    try:
        manifest = store.read_manifest(path, KIND, FORMAT)
    except OtherFormat:
        raise
    except Damaged as error:
        copies = [name for name in store.copies_of_manifest(path) if _readable(path, name)]
        return [Problem(store.MANIFEST, str(error).rstrip("."), BY_GRAPH if copies else BY_HAND)]
    problems = damaged_files(path, manifest, report)
    if problems:
        return problems
    try:
        now = Generation.read(path)
        now.manifold.check_ids()
        _catalogue(now)
    except Damaged as error:
        return [Problem(str(path), str(error).rstrip("."), BY_PHOTOS)]
    return [*_graph(now, report), *_descriptions(now, report), *_local(now), *_photos(now, report)]


def _catalogue(now: Generation) -> None:
    """Read all of the catalogue, which says by itself where a row of it is none."""
    numbers = [image.number for image in now.catalogue.images]
    _ = now.catalogue.skipped
    if numbers != list(range(len(now.manifold.layout_.images))):
        raise Damaged(f"{CATALOGUE} does not have all photos")


def damaged_files(path: Path, manifest: dict[str, Any], report: StageProgress) -> list[Problem]:
    """Compare every file with the manifest: its size, its checksum, and whether it is what its name says."""
    problems = []
    files = manifest["files"]
    for done, (name, listed) in enumerate(files.items(), 1):
        try:
            store.open_file(path / listed["file"], listed, verify=True)
        except Damaged as error:
            wrong = str(error).partition(": ")[0].removeprefix(f"{path / listed['file']} ")
            repair = BY_WHITENING if name in WHITENING else BY_PHOTOS if name in (*DESCRIPTIONS, *LOCAL) else BY_GRAPH
            problems.append(Problem(listed["file"], wrong, repair))
        report("checksums", done, len(files))
    return problems


def _readable(path: Path, name: str) -> bool:
    try:
        return bool(store.read_manifest(path, KIND, FORMAT, name))
    except Damaged:
        return False


def _graph(now: Generation, report: StageProgress) -> Iterator[Problem]:
    manifold = now.manifold
    S, lists = manifold.S_, manifold.lists_
    report("graph", 0, 1)
    n = S.shape[0]
    if not np.isfinite(S.data).all() or (S.data <= 0).any():
        yield Problem("S_data", "an affinity is not a positive number", BY_GRAPH)
    if len(S.indices) and (S.indices == np.repeat(np.arange(n), np.diff(S.indptr))).any():
        yield Problem("S_indices", "a region is its own neighbour", BY_GRAPH)
    mirrored = sp.csr_array(S.T)
    mirrored.sort_indices()
    if not all(
        np.array_equal(a, b)
        for a, b in ((S.indptr, mirrored.indptr), (S.indices, mirrored.indices), (S.data, mirrored.data))
    ):
        yield Problem("S", "the affinity is not symmetric", BY_GRAPH)
    if (manifold.degrees_ < 0).any() or ((manifold.degrees_ > 0) != (np.diff(S.indptr) > 0)).any():
        yield Problem("degrees", "a degree does not fit the region's edges", BY_GRAPH)
    yield from _lists(lists, min(int(manifold.k), n - 1))
    report("graph", 1, 1)


def _lists(lists: Neighbours, k: int) -> Iterator[Problem]:
    n = len(lists.ids)
    for start in range(0, n, ROWS):
        ids, similarities = lists.ids[start : start + ROWS], lists.similarities[start : start + ROWS]
        own = np.arange(start, start + len(ids))[:, None]
        if len(ids) and ids.size and (ids.min() < NOBODY or ids.max() >= n or (ids == own).any()):
            yield Problem("neighbour_ids", "an id leads out of the collection, or to the region itself", BY_GRAPH)
            return
        falls = similarities[:, 1:] > similarities[:, :-1] + 1e-6
        gaps = (ids == NOBODY) != np.isneginf(similarities)
        if falls.any() or gaps.any() or (ids[:, :k] == NOBODY).any():
            yield Problem("neighbour_similarities", "a list is not in order, or too short", BY_GRAPH)
            return


def _descriptions(now: Generation, report: StageProgress) -> Iterator[Problem]:
    manifold, n = now.manifold, len(now.boxes)
    X, layout = manifold.vectors_, manifold.layout_
    for start in range(0, n, ROWS):
        block = X[start : start + ROWS].astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", block, block))
        if not (np.abs(norms - 1) <= UNIT_TOLERANCE).all():
            yield Problem("vectors", "a descriptor is not of unit norm", BY_PHOTOS)
            return
        report("descriptions", min(start + ROWS, n), n)
    expected = pooling_weights(manifold.pooling, X, layout, float(manifold.lam))
    if not np.allclose(manifold.weights_, expected, atol=1e-4):
        yield Problem("weights", "a pooling weight is not that of the region", BY_GRAPH)
    sizes = np.array([(image.width, image.height) for image in now.catalogue.images], np.float32)
    room = np.repeat(sizes, layout.counts, axis=0)
    low, high = now.boxes[:, :2], now.boxes[:, 2:]
    if not ((low >= -1) & (low < high) & (high <= room + 1)).all():
        yield Problem("boxes", "a region lies outside of its photo", BY_PHOTOS)


def _local(now: Generation) -> Iterator[Problem]:
    """Look at where the local features of each photo lie, and at whether there are as many as there may be."""
    if now.local is None:
        return
    counts = np.diff(now.local.starts)
    if (counts < 0).any() or (counts > now.local.keeping.most).any():
        yield Problem("features", "a photo has fewer than no local features, or more than are kept", BY_PHOTOS)


def _photos(now: Generation, report: StageProgress) -> Iterator[Problem]:
    """Compare the photos' files with what the index knows of them."""
    root = now.manifest.root
    if not root.is_dir():
        yield Problem(str(root), "the folder of the photos is not there", "manifind index PHOTOS -o INDEX follows it")
        return
    images = now.catalogue.images
    wrong = []
    for done, image in enumerate(images, 1):
        try:
            status = file_of(key_to_path(root, image.key)).stat()
            if (status.st_size, status.st_mtime_ns) != (image.bytes, image.mtime_ns):
                wrong.append(Problem(image.key, "the photo has changed since", BY_SYNC))
        except (OSError, InvalidInput):
            wrong.append(Problem(image.key, "the photo is gone", BY_SYNC))
        report("photos", done, len(images))
    yield from wrong[:MOST_SHOWN]
    if len(wrong) > MOST_SHOWN:
        yield Problem(f"{len(wrong) - MOST_SHOWN} more photos", "gone or changed since", BY_SYNC)
