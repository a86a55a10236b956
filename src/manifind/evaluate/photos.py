"""A folder of photos described for an evaluation: the collection, and the queries cut out of their photos.

Descriptors are kept in the cache, some photos at a time, known by the photos' contents and the describer's fingerprint.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from manifind.describe import Describer, Found, Unreadable, content_hash, list_photos, read_ahead, read_photo
from manifind.errors import InvalidInput
from manifind.evaluate.cache import Cache
from manifind.evaluate.collection import Described, described
from manifind.evaluate.protocol import Protocol, name_finder, shown, some
from manifind.types import Box, FloatArray, StageProgress

GROUP = 64
"""Photos described and kept at a time."""


class Photos:
    """The photos of a folder, and how they are described.

    Parameters
    ----------
    root
        The folder.
    describer
        What describes them.
    cache
        Where descriptors are kept.
    progress
        Called with a stage, how much of it is done, and how much there is.
    say : callable
        Told of photos that cannot be read.
    """

    def __init__(
        self,
        root: Path,
        describer: Describer,
        cache: Cache,
        progress: StageProgress = lambda *_: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.root = root
        self._describer = describer
        self._fingerprint = describer.fingerprint()["sha256"]
        self._cache = cache
        self._progress = progress
        self._say = say
        self._found = [one for one in list_photos(root) if isinstance(one, Found)]
        if not self._found:
            raise InvalidInput(f"{root} has no photos; give a folder of photos, or descriptors.")
        self.names = tuple(one.key for one in self._found)
        self._find = name_finder(self.names)

    def path_of(self, name: str) -> Path | None:
        """Return the file of a photo by the name that a ground truth gives it."""
        number = self._find(name)
        return None if number is None else self._found[number].path

    def collection(self) -> tuple[Described, dict[str, tuple[float, float]]]:
        """Describe all photos; also return the width and height of each by name."""
        vectors: list[FloatArray] = []
        names: list[str] = []
        sizes: dict[str, tuple[float, float]] = {}
        unreadable: list[str] = []
        for start in range(0, len(self._found), GROUP):
            self._progress("photos", start, len(self._found))
            group = self._found[start : start + GROUP]
            for one, found in zip(group, self._group(group), strict=True):
                if found is None:
                    unreadable.append(one.key)
                else:
                    vectors.append(found[0])
                    names.append(one.key)
                    sizes[one.key] = found[1]
        self._progress("photos", len(self._found), len(self._found))
        if unreadable:
            self._say(f"passed over photos that cannot be read: {some(unreadable)}.")
        image_of = np.repeat(np.arange(len(vectors), dtype=np.int32), [len(one) for one in vectors])
        return described(str(self.root), {"vectors": np.concatenate(vectors), "image_of": image_of}, names), sizes

    def queries(self, protocol: Protocol) -> Described:
        """Describe the queries of a protocol, each cut out of its photo; a box outside its photo is refused."""
        missing = [query.image for query in protocol.queries if self._find(query.image) is None]
        if missing:
            raise InvalidInput(f"{protocol.name} has queries whose photos are not in {self.root}: {some(missing)}.")
        parts: list[FloatArray] = []
        outside: list[str] = []
        for number, query in enumerate(protocol.queries):
            self._progress(f"queries, {protocol.name}", number, len(protocol.queries))
            path = self.path_of(query.image)
            assert path is not None  # noqa: S101 (asked above)
            key = {"photo": content_hash(path), "box": query.box, "describer": self._fingerprint}
            kept = self._cache.get(key)
            if kept is not None:
                parts.append(np.array(kept[1]["vectors"]))
                continue
            pixels = read_photo(path).pixels
            height, width = pixels.shape[:2]
            x0, y0, x1, y1 = query.box or (0.0, 0.0, float(width), float(height))
            if x0 < -1 or y0 < -1 or x1 > width + 1 or y1 > height + 1:
                outside.append(f"{query.name} {shown((x0, y0, x1, y1))} in {width} × {height}")
                continue
            left, top = max(0, int(np.floor(x0))), max(0, int(np.floor(y0)))
            part = pixels[top : int(np.ceil(y1)), left : int(np.ceil(x1))]
            found = self._describer.describe(np.ascontiguousarray(part)).vectors
            self._cache.put(key, {}, {"vectors": found})
            parts.append(found)
        self._progress(f"queries, {protocol.name}", len(protocol.queries), len(protocol.queries))
        if outside:
            raise InvalidInput(f"{protocol.name} has boxes that are not within their photos: {some(outside)}.")
        query_of = np.repeat(np.arange(len(parts), dtype=np.int32), [len(one) for one in parts])
        return described(
            f"the queries of {protocol.name}", {"vectors": np.concatenate(parts), "query_of": query_of}, kind="query"
        )

    def _group(self, group: Sequence[Found]) -> list[tuple[FloatArray, tuple[float, float]] | None]:
        key = {"photos": [content_hash(one.path) for one in group], "describer": self._fingerprint}
        kept = self._cache.get(key)
        if kept is None:
            found: list[tuple[FloatArray, tuple[float, float]] | None] = []
            with closing(read_ahead(group, long_side=self._describer.long_side)) as photos:
                for _, photo in photos:
                    if isinstance(photo, Unreadable):
                        found.append(None)
                    else:
                        vectors = self._describer.describe(photo.pixels).vectors
                        found.append((vectors, (float(photo.width), float(photo.height))))
            counts = np.array([0 if one is None else len(one[0]) for one in found])
            rows = [one[0] for one in found if one is not None]
            sizes = np.array([(0.0, 0.0) if one is None else one[1] for one in found])
            if rows:
                self._cache.put(key, {}, {"vectors": np.concatenate(rows), "counts": counts, "sizes": sizes})
            return found
        arrays = kept[1]
        parts = np.split(np.array(arrays["vectors"]), np.cumsum(arrays["counts"])[:-1])
        return [
            (rows, (float(width), float(height))) if len(rows) else None
            for rows, (width, height) in zip(parts, arrays["sizes"], strict=True)
        ]

    def with_sizes(self, protocol: Protocol, sizes: dict[str, tuple[float, float]]) -> Protocol:
        """Return the protocol with the sizes of its photos, and the boxes of objects where INSTRE has them beside."""
        find = name_finder(list(sizes))
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
                lines = self._text_beside(protocol.images[image])
                if len(lines) == 2 and letter in ("a", "b"):
                    lines = [lines[0 if letter == "a" else 1]]
                if lines:
                    corners = np.array([(x, y, x + w, y + h) for x, y, w, h in lines])
                    low, high = corners[:, :2].min(axis=0), corners[:, 2:].max(axis=0)
                    own[image] = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
            boxes.append(own)
        return tuple(boxes) if any(boxes) else ()

    def _text_beside(self, name: str) -> list[tuple[float, float, float, float]]:
        path = self.path_of(name)
        beside = None if path is None else path.with_suffix(".txt")
        if beside is None or not beside.is_file():
            return []
        lines = [line.split() for line in beside.read_text(encoding="utf-8").splitlines() if line.strip()]
        if any(len(words) != 4 for words in lines):
            raise InvalidInput(f"{beside} is no list of boxes; each line has x, y, width and height.")
        return [(float(a), float(b), float(c), float(d)) for a, b, c, d in lines]
