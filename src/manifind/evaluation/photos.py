"""Photos under an evaluation: descriptors of the collection, and of the queries cut out of their photos.

What the network says of a folder's photos, before whitening, is kept in the cache, some photos at a time, known by the
photos' contents and by all that the descriptors depend on. An index has its descriptors already.
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
from manifind.io import Found, content_hash, extract_ahead, key_to_path, list_photos, read_photo
from manifind.types import Box, FloatArray, StageProgress

GROUP = 64
"""Photos extracted and cached at a time."""
TIMED = 5
"""Queries that are extracted once more, to measure the time."""
EXTRACTION_CODE = ("features", "io", "networks.py")
"""The packages that descriptors depend on."""

Sizes = dict[str, tuple[float, float]]
Raw = npt.NDArray[np.float16]
"""(r, C): what the network says of a photo's regions, before whitening; in half precision, as an index keeps it."""


class _Seen(NamedTuple):
    """A photo as the network saw it."""

    raw: Raw
    size: tuple[float, float]


class Photos:
    """The photos of a folder, and their extractor.

    Parameters
    ----------
    root
        The folder.
    extractor
        The extractor of the photos.
    cache
        Where descriptors are kept.
    progress
        Called with a stage, how much of it is done, and how much there is.
    say : callable
        Told of photos that cannot be read.
    learning : WhiteningTraining, optional
        How a whitening is learnt from the photos, in place of the extractor's.
    """

    def __init__(
        self,
        root: Path,
        extractor: RegionExtractor,
        cache: Cache,
        progress: StageProgress = lambda *_: None,
        say: Callable[[str], None] = lambda _: None,
        *,
        learning: WhiteningTraining | None = None,
    ) -> None:
        self.root = root
        self._extractor = extractor
        self._learning = learning
        self._known_by = {
            "describer": extractor.with_whitening(None).fingerprint()["sha256"],
            "code": code_checksum(*EXTRACTION_CODE),
        }
        self._cache = cache
        self._progress = progress
        self._say = say
        self._found, self.skipped = self._listed()
        if not self._found:
            raise InvalidInputError(f"{root} has no photos; give a folder of photos, or descriptors.", code="no-photos")
        self.names = tuple(self._found)
        self._find = name_lookup(self.names)

    def _listed(self) -> tuple[dict[str, Path], list[str]]:
        """Return the file of each photo by its key, and what was skipped."""
        listed = list(list_photos(self.root))
        self._files = {one.key: one for one in listed if isinstance(one, Found)}
        found = {key: one.path for key, one in self._files.items()}
        return found, [f"{one.key}: {one.reason}" for one in listed if not isinstance(one, Found)]

    def path_of(self, name: str) -> Path | None:
        """Return the file of a photo by the name that a ground truth gives it.

        A file that is no photo of the collection is found by its path from the folder: a query's photo need not be in
        an index.
        """
        number = self._find(name)
        if number is not None:
            return self._found[self.names[number]]
        return file if (file := self.root / name).is_file() else None

    def truth(self, path: Path, names: Sequence[str], *, query_counts: bool) -> Protocol:
        """Read a ground truth about photos of these names."""
        return read_truth(path, names, query_counts=query_counts)

    def collection(self) -> tuple[DescriptorSet, Sizes]:
        """Extract all photos; also return the width and height of each by name."""
        seen: dict[str, _Seen] = {}
        for start in range(0, len(self.names), GROUP):
            self._progress("photos", start, len(self.names))
            group = self.names[start : start + GROUP]
            for name, found in zip(group, self._group(group), strict=True):
                if found is None:
                    self.skipped.append(f"{name}: it cannot be read")
                else:
                    seen[name] = found
        self._progress("photos", len(self.names), len(self.names))
        self.report_skipped()
        if self._learning is not None:
            own = Moments.of((one.raw for one in seen.values()), self._extractor.pooled_by)
            self._extractor = self._extractor.with_whitening(self._learning.whitening(own))
        sizes = {name: one.size for name, one in seen.items()}
        return self._together(str(self.root), [one.raw for one in seen.values()], list(seen)), sizes

    def report_skipped(self) -> None:
        """Name every file that was skipped."""
        for file in self.skipped:
            self._say(f"skipped {file}")

    def _together(self, what: str, raw: Sequence[Raw], names: Sequence[str], kind: str = "image") -> DescriptorSet:
        """Whiten photos and put them together."""
        both = [regional_and_global(one, self._extractor.whitening) for one in raw]
        arrays: dict[str, npt.NDArray[Any]] = {
            "vectors": np.concatenate([regions for regions, _ in both]),
            f"{kind}_of": np.repeat(np.arange(len(both), dtype=np.int32), [len(regions) for regions, _ in both]),
            "global_vectors": np.stack([whole for _, whole in both]),
        }
        return descriptor_set(what, arrays, names, kind=kind)

    def queries(self, protocol: Protocol, raw: Sequence[Raw]) -> DescriptorSet:
        """Return the descriptors of a protocol's queries, once the collection is extracted."""
        names = [query.name for query in protocol.queries]
        return self._together(f"the queries of {protocol.name}", raw, names, "query")

    def extract_queries(self, protocol: Protocol) -> tuple[list[Raw], float]:
        """Let the network see the queries of a protocol, each cut out of its photo; return also the seconds of one.

        A box outside its photo is refused, before the collection is extracted.
        """
        missing = [query.image for query in protocol.queries if self.path_of(query.image) is None]
        if missing:
            raise InvalidInputError(
                f"{protocol.name} has queries whose photos are not in {self.root}: {preview(missing)}; put them "
                "there, or name them by their path from it.",
                code="missing-query-photo",
            )
        stage, count = f"queries, {protocol.name}", len(protocol.queries)
        seen: list[Raw] = []
        outside: list[str] = []
        seconds: list[float] = []
        for number, query in enumerate(protocol.queries):
            self._progress(stage, number, count)
            path = self.path_of(query.image)
            assert path is not None  # noqa: S101 (asked above)
            key = {"photo": content_hash(path), "box": query.box, **self._known_by}
            kept = self._cache.get(key)
            if kept is not None and len(seconds) >= TIMED:
                seen.append(np.array(kept[1]["raw"]))
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
            found = self._extractor.unwhitened(part).astype(np.float16)
            seconds.append(time.perf_counter() - began)
            self._cache.put(key, {}, {"raw": found})
            seen.append(found)
        self._progress(stage, count, count)
        if outside:
            raise InvalidInputError(
                f"{protocol.name} has boxes that are not within their photos: {preview(outside)}.", code="box-outside"
            )
        return seen, float(np.median(seconds))

    @cached_property
    def _extractor_for_threads(self) -> tuple[RegionExtractor, int]:
        return self._extractor.for_threads()

    def _group(self, group: Sequence[str]) -> list[_Seen | None]:
        files = [self._files[name] for name in group]
        key = {"photos": [content_hash(one.path) for one in files], **self._known_by}
        kept = self._cache.get(key)
        if kept is None:
            found: list[_Seen | None] = []
            extractor, threads = self._extractor_for_threads
            options = {"threads": threads, "long_side": extractor.long_side}
            with closing(extract_ahead(files, extractor.unwhitened, **options)) as photos:
                for _, photo, raw in photos:
                    if isinstance(photo, UnreadableImageError) or raw is None:
                        found.append(None)
                    else:
                        found.append(_Seen(raw.astype(np.float16), (float(photo.width), float(photo.height))))
            readable = [one for one in found if one is not None]
            if readable:
                arrays = {
                    "raw": np.concatenate([one.raw for one in readable]),
                    "sizes": np.array([one.size for one in readable]),
                    "counts": np.array([0 if one is None else len(one.raw) for one in found]),
                }
                self._cache.put(key, {}, arrays)
            return found
        arrays = kept[1]
        counts = np.array(arrays["counts"])
        rows = iter(np.split(np.array(arrays["raw"]), np.cumsum(counts[counts > 0])[:-1]))
        sizes = iter(arrays["sizes"].tolist())
        return [_Seen(next(rows), tuple(next(sizes))) if count else None for count in counts]

    def with_sizes(self, protocol: Protocol, sizes: Sizes) -> Protocol:
        """Return the protocol with the sizes of its photos, and the boxes of objects where INSTRE has them beside."""
        find = name_lookup(list(sizes))
        listed = list(sizes.values())
        known = {i: listed[n] for i, name in enumerate(protocol.images) if (n := find(name)) is not None}
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
            own = {}
            for image in positives.tolist():
                listed = self._boxes_beside(protocol.images[image])
                if len(listed) == 2 and letter in ("a", "b"):
                    listed = [listed[0 if letter == "a" else 1]]
                if listed:
                    own[image] = bounding_box(listed)
            boxes.append(own)
        return tuple(boxes) if any(boxes) else ()

    def _boxes_beside(self, name: str) -> list[Box]:
        path = self.path_of(name)
        beside = None if path is None else path.with_suffix(".txt")
        return boxes_in(beside) if beside is not None and beside.is_file() else []


class IndexedPhotos(Photos):
    """The photos of an index, with the descriptors that it has; only queries are extracted."""

    def __init__(
        self,
        path: Path,
        cache: Cache,
        progress: StageProgress = lambda *_: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.index = Index.open(path)
        self.path = path
        super().__init__(self.index.root, self.index.extractor, cache, progress, say)

    def _listed(self) -> tuple[dict[str, Path], list[str]]:
        catalogue, root = self.index.catalogue, self.index.root
        photos = catalogue.images
        self.copies = {copy: one.key for one in photos for copy in catalogue.copies_of(one.sha256)}
        found = {one.key: key_to_path(root, one.key) for one in photos}
        return found, [f"{one.key}: {one.reason}" for one in catalogue.skipped]

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
        sizes = {one.key: (float(one.width), float(one.height)) for one in self.index.catalogue.images}
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
