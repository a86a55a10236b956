"""One state of an index, as it was written."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.baselines import NearestImages, RegionMatch
from manifind.errors import DamagedError, InvalidInputError
from manifind.features import RegionExtractor, Whitening
from manifind.geometry import VotedFeatures, VotingConfig
from manifind.graph import UNKNOWN, KnnReport
from manifind.index.storage.catalogue import Catalogue, Photos
from manifind.index.storage.local_features import StoredLocalFeatures
from manifind.index.storage.manifest import Manifest, read_manifest, read_store
from manifind.index.storage.remote import RemoteCollection
from manifind.kernels import AUTO
from manifind.manifold import BUILT, Manifold
from manifind.manifold.fitted import check_ids
from manifind.storage import store
from manifind.types import FloatArray, Vectors

CATALOGUE = "images.sqlite"
MAX_RECHECKED_ENTRIES = 20_000_000
"""Where S has no more entries than this, its ids are compared with their range before every search."""


@dataclass(eq=False)
class SnapshotCache:
    """What is computed from a snapshot when it is first needed: its one mutable part."""

    extractor: RegionExtractor | None = None
    """The extractor of queries."""
    null_similarity: float | None = None
    """The null similarity, where the manifest does not have it."""
    methods: dict[str, Manifold | NearestImages | RegionMatch] = field(default_factory=dict)
    """Fitted estimators of the methods besides regional diffusion."""
    dates: list[str] | None = None
    """When each photo was taken."""
    voted: tuple[VotingConfig, VotedFeatures] | None = None
    """The local features of all photos that queries vote for, and how: some 18 kB a photo."""
    lists_checked: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while one of these is computed, so that none is computed twice."""


@dataclass(frozen=True)
class Snapshot:
    """One state of an index: it stays valid while newer generations are written."""

    number: int
    stamp: str
    """A stamp that no other generation has."""
    manifest: Manifest
    catalogue: Photos
    manifold: Manifold
    boxes: FloatArray
    whitening: Whitening | None
    sizes: dict[str, int]
    """The size of each file in bytes."""
    local: StoredLocalFeatures | None = None
    """The local features of the photos, where the index keeps them."""
    part_of: int | None = None
    """How many photos the collection has of which these are a part; None for all of them."""
    cache: SnapshotCache = field(default_factory=SnapshotCache, repr=False, compare=False)

    @property
    def photos(self) -> int:
        """How many photos the whole collection has."""
        return len(self.catalogue) if self.part_of is None else self.part_of

    @classmethod
    def read(cls, path: Path, *, verify: bool = False, device: str = AUTO) -> Self:
        """Open the newest generation of the index at `path`; no array is read, unless to `verify` its checksum.

        `device` is what searches it.
        """
        while True:
            stored = read_store(path, verify=verify)
            try:
                return cls._of(path, stored, device)
            except DamagedError:
                # The catalogue is opened by name: a writer may have taken it away since.
                if read_manifest(path)["stamp"] == stored.stamp:
                    raise

    @classmethod
    def _of(cls, path: Path, stored: store.Stored, device: str) -> Self:
        arrays = stored.arrays
        try:
            manifest = Manifest.of(stored.fields)
            # Before there was a choice, the lists were those of the parameter.
            built = manifest.built or KnnReport.by(manifest.parameters.get("knn", UNKNOWN))
            manifold = Manifold.from_arrays({**manifest.parameters, "device": device, BUILT: built._asdict()}, arrays)
            _check_shapes(arrays, manifold)
            catalogue = Catalogue.open(stored.files[CATALOGUE])
            learnt = "whitening_mean" in arrays or "whitening_project" in arrays
            whitening = Whitening(arrays["whitening_mean"], arrays["whitening_project"]) if learnt else None
            keeping = manifest.local_features
            local = None if keeping is None else StoredLocalFeatures.of(keeping, arrays, len(catalogue))
        except DamagedError as error:
            raise DamagedError(f"{path}: {error}") from error
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise DamagedError(
                f"{path} does not say all of what an index is ({error}); repair it or make it again."
            ) from error
        if len(catalogue) != len(manifold.layout_.images):
            raise DamagedError(f"{path} has boxes or photos of another collection; repair it or make it again.")
        return cls(
            stored.generation,
            stored.stamp,
            manifest,
            catalogue,
            manifold,
            arrays["boxes"],
            whitening,
            stored.sizes,
            local,
        )

    @property
    def regions(self) -> int:
        """How many regions a search solves for at most."""
        return len(self.boxes)

    @property
    def dimension(self) -> int:
        """The number of dimensions of its descriptors."""
        return int(self.manifold.vectors_.shape[1])

    def check_ids(self) -> None:
        """Raise `DamagedError` where an id of the graph or of the neighbour lists leads nowhere; looked at once."""
        self.manifold.check_ids()
        if not self.cache.lists_checked:
            ids = self.manifold.lists_.ids
            if ids.size and (ids.min() < -1 or ids.max() >= len(ids)):
                raise DamagedError(f"neighbour_ids has ids beyond the {len(ids)} regions; repair the index.")
            self.cache.lists_checked = True

    def recheck_ids(self) -> None:
        """Raise `DamagedError` where an id of a mapped graph leads nowhere by now.

        Files are replaced and never changed in place; where somebody does so all the same, compiled code must not
        follow what stands there. It takes a hundredth of the time of a search; of graphs with more edges than
        `MAX_RECHECKED_ENTRIES`, which are solved near the query alone, it would take more than the search.
        """
        S = self.manifold.S_
        if S.nnz <= MAX_RECHECKED_ENTRIES and (_is_mapped(S.indices) or _is_mapped(S.indptr)):
            check_ids(S, self.manifold.layout_)

    def regions_of(self, image: int) -> slice:
        """Return the rows of an image's regions."""
        if not 0 <= image < len(self.catalogue):
            raise InvalidInputError(f"image is {image}; give a number from 0 to {len(self.catalogue) - 1}.")
        self.manifold.check_ids()
        first, end = self.manifold.layout_.starts[image : image + 2]
        return slice(int(first), int(end))


AnySnapshot = Snapshot | RemoteCollection
"""What an index searches."""


def _is_mapped(array: npt.NDArray[Any] | None) -> bool:
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return array is not None and isinstance(array, np.memmap)


def _check_shapes(arrays: dict[str, npt.NDArray[Any]], manifold: Manifold) -> None:
    """Raise `DamagedError` unless the arrays that only an index has fit those of the manifold."""
    n, d = manifold.vectors_.shape
    images, boxes = manifold.layout_.images, arrays["boxes"]
    if boxes.shape != (n, 4) or boxes.dtype != np.float32 or not boxes.flags.c_contiguous:
        raise DamagedError("boxes are of another collection; repair the index or make it again.")
    if 0 in (n, d, len(images)) or manifold.global_vectors_.shape[1] != d:
        raise DamagedError("the index has no regions, or none of the right size; make it again.")
    # They ascend, which is looked at when they are first used: so they are all numbers from 0 on.
    if images[0] != 0 or images[-1] != len(images) - 1:
        raise DamagedError("images has other numbers than the catalogue; repair the index or make it again.")
    for name in ("whitening_mean", "whitening_project"):
        if name in arrays and arrays[name].dtype != np.float32:
            raise DamagedError(f"{name} is of {arrays[name].dtype}, not of float32; repair the index.")
    if "whitening_project" in arrays and arrays["whitening_project"].shape[-1:] != (d,):
        raise DamagedError("whitening_project is of another collection; repair the index.")


@dataclass(frozen=True)
class NullSimilarityConfig:
    """What is measured of a collection as the similarity of unrelated regions."""

    pair_rate: int = 300
    """One pair in so many of regions of different images exceeds it. Chosen on Holidays, with
    `CutoffConfig.null_factor`."""
    regions: int = 400
    """Regions that are compared, spread over the collection."""
    others: int = 40_000
    """Regions that they are compared with."""


NULL_BLOCK = 4_000
"""Regions that are compared at a time: it bounds the memory."""


def measure_null_similarity(
    vectors: Vectors, image_of: npt.NDArray[np.integer], config: NullSimilarityConfig | None = None
) -> float:
    """Return the similarity that one pair in `pair_rate` of regions of different images exceeds; else 1."""
    config, n = config or NullSimilarityConfig(), len(vectors)
    rows, columns = (
        np.unique(np.linspace(0, n - 1, min(size, n)).astype(np.intp)) for size in (config.regions, config.others)
    )
    sample = np.asarray(vectors[rows], np.float32)
    pairs = sum(int((image_of[columns] != image).sum()) for image in image_of[rows])
    if not pairs:
        return 1.0
    kept = pairs // config.pair_rate + 2  # the quantile lies between two of the largest
    largest = np.empty(0, np.float32)
    for start in range(0, len(columns), NULL_BLOCK):
        block = columns[start : start + NULL_BLOCK]
        similarities = sample @ np.asarray(vectors[block], np.float32).T
        apart = similarities[image_of[rows][:, None] != image_of[block]]
        largest = np.concatenate([largest, apart])
        largest = np.partition(largest, max(0, len(largest) - kept))[-kept:]
    place = (pairs - 1) * (1 - 1 / config.pair_rate) - (pairs - len(largest))
    return float(np.interp(place, np.arange(len(largest)), np.sort(largest)))
