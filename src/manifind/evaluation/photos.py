"""Photos under an evaluation: descriptors of the collection, and of the queries cut out of their photos.

The unwhitened descriptors of a folder's photos are cached in batches, by the photos' contents, the extractor and its
code. An index has its descriptors already.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.evaluation.cache import Cache, code_checksum
from manifind.evaluation.descriptors import DescriptorSet, descriptor_set
from manifind.evaluation.formats import read_truth
from manifind.evaluation.protocol import Protocol, bounding_box, boxes_in, format_box, name_lookup, preview
from manifind.features import Moments, RegionExtractor, Whitening
from manifind.features.whitening import unit_rows
from manifind.index import Index
from manifind.index.storage.build_config import WhiteningTraining
from manifind.io import ListedFile, content_hash, extract_ahead, key_to_path, list_photos, read_photo
from manifind.types import Box, FloatArray, StageProgress

BATCH_SIZE = 64
"""Photos extracted and cached at a time."""
TIMED_QUERIES = 5
"""Queries that are extracted even where they are cached, to measure the time."""
EXTRACTION_CODE = ("features", "io", "networks.py")
"""The packages that descriptors depend on."""

Sizes = dict[str, tuple[float, float]]
Raw = npt.NDArray[np.float16]
"""(r, C): the unwhitened descriptors of a photo's regions, in half precision, as in an index."""


class PhotoDescriptors(NamedTuple):
    """The unwhitened descriptors of a photo, and its width and height."""

    raw: Raw
    size: tuple[float, float]


class Photos:
    """The photos of a folder, and their extractor.

    `learning` says how a whitening is learnt from the photos, in place of the extractor's. `warn` is called with a
    sentence about each photo that cannot be read.
    """

    def __init__(
        self,
        root: Path,
        extractor: RegionExtractor,
        cache: Cache,
        progress: StageProgress = lambda *_: None,
        warn: Callable[[str], None] = lambda _: None,
        *,
        learning: WhiteningTraining | None = None,
    ) -> None:
        self.root = root
        self._extractor = extractor
        self._learning = learning
        self._cache_key = {
            "extractor": extractor.with_whitening(None).fingerprint()["sha256"],
            "code": code_checksum(*EXTRACTION_CODE),
        }
        self._cache = cache
        self._progress = progress
        self._warn = warn
        self._paths, self.skipped = self._list_files()
        if not self._paths:
            raise InvalidInputError(f"{root} has no photos; give a folder of photos, or descriptors.", code="no-photos")
        self.names = tuple(self._paths)
        self._find = name_lookup(self.names)

    def _list_files(self) -> tuple[dict[str, Path], list[str]]:
        """Return the file of each photo by its key, and what was skipped."""
        files = list(list_photos(self.root))
        self._files = {file.key: file for file in files if isinstance(file, ListedFile)}
        skipped = [f"{file.key}: {file.reason}" for file in files if not isinstance(file, ListedFile)]
        return {key: file.path for key, file in self._files.items()}, skipped

    def path_of(self, name: str) -> Path | None:
        """Return the file of a photo by the name that a ground truth gives it.

        A file that is no photo of the collection is found by its path from the folder: a query's photo need not be in
        an index.
        """
        number = self._find(name)
        if number is not None:
            return self._paths[self.names[number]]
        return file if (file := self.root / name).is_file() else None

    def truth(self, path: Path, names: Sequence[str], *, query_counts: bool) -> Protocol:
        """Read a ground truth about photos of these names."""
        return read_truth(path, names, query_counts=query_counts)

    def collection(self) -> tuple[DescriptorSet, Sizes]:
        """Extract all photos; also return the width and height of each by name."""
        photos: dict[str, PhotoDescriptors] = {}
        for start in range(0, len(self.names), BATCH_SIZE):
            self._progress("photos", start, len(self.names))
            group = self.names[start : start + BATCH_SIZE]
            for name, photo in zip(group, self._extract_batch(group), strict=True):
                if photo is None:
                    self.skipped.append(f"{name}: it cannot be read")
                else:
                    photos[name] = photo
        self._progress("photos", len(self.names), len(self.names))
        self.report_skipped()
        if self._learning is not None:
            moments = Moments.of((photo.raw for photo in photos.values()), self._extractor.pooled_by)
            self._extractor = self._extractor.with_whitening(self._learning.whitening(moments))
        sizes = {name: photo.size for name, photo in photos.items()}
        return self._whiten(str(self.root), [photo.raw for photo in photos.values()], list(photos)), sizes

    def report_skipped(self) -> None:
        """Warn of every file that was skipped."""
        for file in self.skipped:
            self._warn(f"skipped {file}")

    def _whiten(self, what: str, raw: Sequence[Raw], names: Sequence[str], kind: str = "image") -> DescriptorSet:
        """Return the whitened descriptors of photos."""
        both = [regional_and_global(photo, self._extractor.whitening) for photo in raw]
        arrays: dict[str, npt.NDArray[Any]] = {
            "vectors": np.concatenate([regions for regions, _ in both]),
            f"{kind}_of": np.repeat(np.arange(len(both), dtype=np.int32), [len(regions) for regions, _ in both]),
            "global_vectors": np.stack([whole for _, whole in both]),
        }
        return descriptor_set(what, arrays, names, kind=kind)

    def queries(self, protocol: Protocol, raw: Sequence[Raw]) -> DescriptorSet:
        """Return the descriptors of a protocol's queries, once the collection is extracted."""
        names = [query.name for query in protocol.queries]
        return self._whiten(f"the queries of {protocol.name}", raw, names, "query")

    def extract_queries(self, protocol: Protocol) -> tuple[list[Raw], float]:
        """Extract the queries of a protocol, each cut out of its photo; also return the median seconds of a query.

        A box outside its photo is an error, before the collection is extracted.
        """
        missing = [query.image for query in protocol.queries if self.path_of(query.image) is None]
        if missing:
            raise InvalidInputError(
                f"{protocol.name} has queries whose photos are not in {self.root}: {preview(missing)}; put them "
                "there, or name them by their path from it.",
                code="missing-query-photo",
            )
        stage, count = f"queries, {protocol.name}", len(protocol.queries)
        extracted: list[Raw] = []
        outside: list[str] = []
        seconds: list[float] = []
        for number, query in enumerate(protocol.queries):
            self._progress(stage, number, count)
            path = self.path_of(query.image)
            assert path is not None  # noqa: S101 (asked above)
            key = {"photo": content_hash(path), "box": query.box, **self._cache_key}
            cached = self._cache.get(key)
            if cached is not None and len(seconds) >= TIMED_QUERIES:
                extracted.append(np.array(cached[1]["raw"]))
                continue
            pixels = read_photo(path).pixels
            height, width = pixels.shape[:2]
            x0, y0, x1, y1 = query.box or (0.0, 0.0, float(width), float(height))
            if x0 < -1 or y0 < -1 or x1 > width + 1 or y1 > height + 1:
                outside.append(f"{query.name} {format_box((x0, y0, x1, y1))} in {width} × {height}")
                continue
            left, top = max(0, int(np.floor(x0))), max(0, int(np.floor(y0)))
            part = np.ascontiguousarray(pixels[top : int(np.ceil(y1)), left : int(np.ceil(x1))])
            began = time.perf_counter()
            raw = self._extractor.extract_unwhitened(part).astype(np.float16)
            seconds.append(time.perf_counter() - began)
            self._cache.put(key, {}, {"raw": raw})
            extracted.append(raw)
        self._progress(stage, count, count)
        if outside:
            raise InvalidInputError(
                f"{protocol.name} has boxes that are not within their photos: {preview(outside)}.", code="box-outside"
            )
        return extracted, float(np.median(seconds))

    @cached_property
    def _extractor_for_threads(self) -> tuple[RegionExtractor, int]:
        return self._extractor.for_threads()

    def _extract_batch(self, names: Sequence[str]) -> list[PhotoDescriptors | None]:
        files = [self._files[name] for name in names]
        key = {"photos": [content_hash(file.path) for file in files], **self._cache_key}
        cached = self._cache.get(key)
        if cached is None:
            extracted: list[PhotoDescriptors | None] = []
            extractor, threads = self._extractor_for_threads
            options = {"threads": threads, "long_side": extractor.long_side}
            with closing(extract_ahead(files, extractor.extract_unwhitened, **options)) as photos:
                for _, photo, raw in photos:
                    if isinstance(photo, UnreadableImageError) or raw is None:
                        extracted.append(None)
                    else:
                        size = (float(photo.width), float(photo.height))
                        extracted.append(PhotoDescriptors(raw.astype(np.float16), size))
            readable = [photo for photo in extracted if photo is not None]
            if readable:
                arrays = {
                    "raw": np.concatenate([photo.raw for photo in readable]),
                    "sizes": np.array([photo.size for photo in readable]),
                    "counts": np.array([0 if photo is None else len(photo.raw) for photo in extracted]),
                }
                self._cache.put(key, {}, arrays)
            return extracted
        arrays = cached[1]
        counts = np.array(arrays["counts"])
        rows = iter(np.split(np.array(arrays["raw"]), np.cumsum(counts[counts > 0])[:-1]))
        sizes = iter(arrays["sizes"].tolist())
        return [PhotoDescriptors(next(rows), tuple(next(sizes))) if count else None for count in counts]

    def with_sizes(self, protocol: Protocol, sizes: Sizes) -> Protocol:
        """Return the protocol with the sizes of its photos, and the boxes of objects where INSTRE has them beside."""
        find = name_lookup(list(sizes))
        ordered = list(sizes.values())
        known = {i: ordered[n] for i, name in enumerate(protocol.images) if (n := find(name)) is not None}
        objects = protocol.objects or self._instre_objects(protocol)
        return replace(protocol, sizes=known, objects=objects)

    def _instre_objects(self, protocol: Protocol) -> tuple[dict[int, Box], ...]:
        """Read the boxes that INSTRE has in a text file beside each photo: x, y, width, height.

        A photo of INSTRE-M shows two objects, the first that of class ``..a`` and the second of ``..b`` of INSTRE-S1;
        its own queries look for both.
        """
        if protocol.name != "INSTRE":
            return ()
        boxes: list[dict[int, Box]] = []
        for query, positives in zip(protocol.queries, protocol.tasks[0].positives, strict=True):
            parts = query.image.split("/")
            letter = parts[-2][2:3] if len(parts) > 1 and not parts[0].lower().endswith("-m") else ""
            objects = {}
            for image in positives.tolist():
                of_image = self._read_boxes(protocol.images[image])
                if len(of_image) == 2 and letter in ("a", "b"):
                    of_image = [of_image[0 if letter == "a" else 1]]
                if of_image:
                    objects[image] = bounding_box(of_image)
            boxes.append(objects)
        return tuple(boxes) if any(boxes) else ()

    def _read_boxes(self, name: str) -> list[Box]:
        path = self.path_of(name)
        file = None if path is None else path.with_suffix(".txt")
        return boxes_in(file) if file is not None and file.is_file() else []


class IndexedPhotos(Photos):
    """The photos of an index, with the descriptors that it has; only queries are extracted."""

    def __init__(
        self,
        path: Path,
        cache: Cache,
        progress: StageProgress = lambda *_: None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.index = Index.open(path)
        self.path = path
        super().__init__(self.index.root, self.index.extractor, cache, progress, warn)

    def _list_files(self) -> tuple[dict[str, Path], list[str]]:
        catalogue, root = self.index.catalogue, self.index.root
        photos = catalogue.images
        self.copies = {copy: photo.key for photo in photos for copy in catalogue.copies_of(photo.sha256)}
        paths = {photo.key: key_to_path(root, photo.key) for photo in photos}
        return paths, [f"{file.key}: {file.reason}" for file in catalogue.skipped]

    def truth(self, path: Path, names: Sequence[str], *, query_counts: bool) -> Protocol:
        """Read a ground truth, in which a file that is identical to a photo of the index stands for that photo."""
        return read_truth(path, names, query_counts=query_counts, copies=self.copies)

    def collection(self) -> tuple[DescriptorSet, Sizes]:
        """Return the descriptors of the index, and the width and height of each photo by name."""
        manifold = self.index.manifold
        arrays: dict[str, npt.NDArray[np.generic]] = {
            "vectors": np.asarray(manifold.vectors_, np.float32),
            "image_of": manifold.layout_.place_of,
        }
        self.report_skipped()
        sizes = {photo.key: (float(photo.width), float(photo.height)) for photo in self.index.catalogue.images}
        return descriptor_set(str(self.path), arrays, self.names), sizes


def regional_and_global(
    raw: npt.NDArray[np.floating[Any]], whitening: Whitening | None
) -> tuple[FloatArray, FloatArray]:
    """Return the descriptors of a photo's regions, and of the whole: (r, d) and (d,).

    The whole is the sum of the regions before whitening, at unit norm, then whitened as they are (Sec. 5.1).
    """
    regions = np.asarray(raw, np.float32)
    both = unit_rows(np.concatenate([regions, regions.sum(axis=0, keepdims=True)]))
    if whitening is not None:
        both = whitening.apply(both)
    return both[:-1], both[-1]
