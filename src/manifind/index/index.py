"""`Index`: photos in, photos out."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind import store
from manifind.describe import (
    Describer,
    Photo,
    Whitening,
    key_to_path,
    load_describer,
    read_photo,
    whitening_from_photos,
)
from manifind.errors import InvalidInput
from manifind.index.build import CATALOGUE, FORMAT, KIND, Before, Changes, Progress, build, listed
from manifind.index.catalogue import Catalogue
from manifind.index.explain import best_path
from manifind.index.query import METHODS, Box, Hit, Query, View, box_of, rank, view, whole_box
from manifind.manifold import Manifold
from manifind.validation import FloatArray, choice
from manifind.version import VERSION

Source = str | os.PathLike[str] | bytes | npt.NDArray[np.uint8]
"""A photo: its path, the key of one in the collection, its bytes, or its pixels (h, w, 3)."""


@dataclass(frozen=True)
class Place:
    """A region of a photo of the collection, or of the query where `key` is None."""

    key: str | None
    box: Box
    view: int = 0
    """Which photo of the query."""


@dataclass(frozen=True)
class Link:
    """Two regions that look alike."""

    source: Place
    target: Place
    similarity: float
    """Inner product of their descriptors."""
    flow: float
    """α s_ij: which part of the source's score the target gets; for the first link what the query seeded, in parts of
    the largest seed."""


@dataclass(frozen=True)
class Chain:
    """The links from the query to a photo."""

    key: str
    links: tuple[Link, ...]

    @property
    def keys(self) -> list[str]:
        """The photos on the way, each once, the last the one that was found."""
        keys = [link.target.key for link in self.links if link.target.key is not None]
        return [key for i, key in enumerate(keys) if i == 0 or keys[i - 1] != key]


@dataclass(frozen=True)
class Generation:
    """One state of an index, as it was written: whoever has it keeps it."""

    number: int
    fields: dict[str, Any]
    catalogue: Catalogue
    manifold: Manifold
    boxes: FloatArray
    whitening: Whitening | None
    others: dict[str, Any] = field(default_factory=dict)
    """What the methods besides regional diffusion need, made at their first use."""

    @classmethod
    def read(cls, path: Path, *, verify: bool) -> Self:
        """Read the newest generation of the index at `path`."""
        stored = store.read(path, KIND, FORMAT, verify=verify)
        arrays = stored.arrays
        learnt = "whitening_mean" in arrays
        return cls(
            stored.generation,
            stored.fields,
            Catalogue.read(stored.files[CATALOGUE]),
            Manifold.from_arrays(stored.fields["manifold"], arrays),
            arrays["boxes"],
            Whitening(arrays["whitening_mean"], arrays["whitening_project"]) if learnt else None,
        )


class Index:
    """A collection of photos kept on disk.

    >>> index = Index.create("photos.manifind", "photos/")
    >>> hits = index.search("shot.jpg", box=(40, 60, 220, 310), top=20)
    >>> hits[0].key, hits[0].score, hits[0].regions
    >>> index.explain(hits[0])
    """

    def __init__(self, path: Path, generation: Generation, describer: Describer | None = None) -> None:
        self.path = path
        self._now = generation
        self._describer = None if describer is None else self._same(describer)

    @property
    def generation(self) -> int:
        """The number of the state that is being searched."""
        return self._now.number

    @property
    def catalogue(self) -> Catalogue:
        """The photos, and what was passed over."""
        return self._now.catalogue

    @property
    def manifold(self) -> Manifold:
        """The graph of their regions."""
        return self._now.manifold

    @property
    def boxes(self) -> FloatArray:
        """Where each region is in its photo, (n, 4)."""
        return self._now.boxes

    @property
    def root(self) -> Path:
        """The folder of the photos."""
        return Path(self._now.fields["root"])

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        photos: str | os.PathLike[str],
        *,
        backbone: str | os.PathLike[str] | None = None,
        whiten: str | os.PathLike[str] = "shipped",
        describer: Describer | None = None,
        progress: Progress | None = None,
        **parameters: Any,
    ) -> Self:
        """Make an index of the photos below a folder.

        Parameters
        ----------
        path
            The folder to write, ``photos.manifind`` say. What an interrupted run described there is taken up again.
        photos
            The folder of photos.
        backbone
            A network that comes with manifind, by name, an ONNX file, or a retrieval checkpoint.
        whiten : {"shipped", "learn", "none"} or path
            The whitening that comes with the backbone, if any; one learnt from these photos (at least some hundred);
            none; or a file that ``Whitening.save`` or ``manifind whiten`` wrote.
        describer : Describer, optional
            In place of `backbone` and `whiten`, all of how photos are described.
        progress : callable, optional
            Called with the stage ("photos", "graph"), how much of it is done, and how much there is.
        **parameters
            Of `Manifold`.
        """
        target, root = Path(path), Path(photos)
        if (target / store.MANIFEST).exists():
            raise InvalidInput(f"{target} is an index already; open it and call sync(), or choose another path.")
        source = "mobilenet_v2" if backbone is None else str(backbone)
        made = _described_by(source, whiten, root, progress) if describer is None else describer
        fields = _fields(source if describer is None else None, made)
        build(target, root, made, Manifold(**parameters), fields, progress=progress)
        return cls(target, Generation.read(target, verify=False), made)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, describer: Describer | None = None, verify: bool = False) -> Self:
        """Open an index; its arrays are memory-mapped.

        Parameters
        ----------
        path
            The index's folder.
        describer : Describer, optional
            What describes queries, where the index was made by one of your own; it must be the same.
        verify : bool
            Read everything through and compare checksums; sizes are always compared.
        """
        return cls(Path(path), Generation.read(Path(path), verify=verify), describer)

    # -- searching ----------------------------------------------------------------------------------------------------

    def search(
        self,
        image: Source,
        box: Sequence[float] | None = None,
        *,
        also: Sequence[tuple[Source, Sequence[float] | None]] = (),
        not_this: Sequence[tuple[Source, Sequence[float] | None]] = (),
        top: int | None = 20,
        method: str = "regional",
    ) -> list[Hit]:
        """Find the photos that contain what is in the box.

        Parameters
        ----------
        image
            A photo: its path, the key of one in the collection, its bytes, or its pixels.
        box : (x0, y0, x1, y1), optional
            The part of it to look for, in pixels of the upright photo; without it, all of it.
        also
            More photos and boxes of the same object, all one query.
        not_this
            Photos and boxes of what looks like it and is not meant; only diffusion can keep away from them.
        top : int, optional
            How many photos to return; None for all.
        method : {"regional", "global", "match", "plain"}
            Regional diffusion, global diffusion, R-match, or plain similarity.
        """
        choice(method, METHODS, "method")
        views = [self._view(photo, part) for photo, part in [(image, box), *also]]
        against = [self._view(photo, part) for photo, part in not_this]
        (search,) = rank(self._now, [Query.of(views, against)], top, method)
        return search.hits()

    def explain(self, hit: Hit) -> Chain:
        """Return the chain of photos that led from the query to this one.

        It is the path through the graph along which most of the query's score could flow: see
        `manifind.index.explain`.
        """
        search = hit._search
        if search.ranking.seed is None:
            raise InvalidInput(f"method {search.method!r} follows no chain; search with method='regional' to explain.")
        # What speaks against the query seeds below zero: no chain begins there.
        seed, manifold = search.ranking.seed.positive(), search.generation.manifold
        first, end = manifold.layout_.starts[hit.image : hit.image + 2]
        targets = np.arange(first, end, dtype=np.int32)
        path = best_path(manifold.S_, float(manifold.alpha), seed, search.ranking.regions, targets)
        if path is None:
            return Chain(hit.key, ())
        X = manifold.vectors_
        start = int(path.regions[0])
        likeness = search.query.vectors @ X[start]
        nearest = int(likeness.argmax())
        seeded = seed.values[np.searchsorted(seed.regions, start)] / seed.values.max()
        from_query = Place(None, box_of(search.query.boxes[nearest]), int(search.query.view_of[nearest]))
        places = [_place(search.generation, int(region)) for region in path.regions]
        links = [Link(from_query, places[0], float(likeness[nearest]), float(seeded))]
        for i, (a, b) in enumerate(pairwise(path.regions)):
            links.append(Link(places[i], places[i + 1], float(X[a] @ X[b]), float(path.flows[i])))
        return Chain(hit.key, tuple(links))

    def photo(self, key: str, *, long_side: int | None = None) -> Photo:
        """Read a photo of the collection."""
        if self.catalogue.of_key(key) is None:
            raise InvalidInput(f"{key!r} is not in the collection; give a key that `search` returned.")
        return read_photo(key_to_path(self.root, key), long_side=long_side)

    def _view(self, image: Source, box: Sequence[float] | None) -> View:
        """Describe a part of a photo; its boxes are in pixels of the whole."""
        return view(self.describer, self.cut(image, box)[0], box)

    def cut(
        self, image: Source, box: Sequence[float] | None
    ) -> tuple[npt.NDArray[np.uint8], tuple[int, int, int, int]]:
        """Return the pixels of a photo and the box, in whole pixels within it."""
        pixels = image if isinstance(image, np.ndarray) else self._read(image).pixels
        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
            raise InvalidInput(f"image has shape {pixels.shape} and dtype {pixels.dtype}; give (h, w, 3) of uint8.")
        return pixels, whole_box(box, pixels.shape[1], pixels.shape[0])

    def _read(self, image: str | os.PathLike[str] | bytes) -> Photo:
        if isinstance(image, bytes):
            return read_photo(image)
        if not isinstance(image, str | os.PathLike):
            raise InvalidInput(f"image is a {type(image).__name__}; give a path, a key, bytes or pixels.")
        if not Path(image).exists() and self.catalogue.of_key(os.fspath(image)) is not None:
            return self.photo(os.fspath(image))
        if not Path(image).exists():
            raise InvalidInput(f"{image} is neither a file nor a key of the collection; give the path of a photo.")
        return read_photo(image)

    # -- describing ---------------------------------------------------------------------------------------------------

    @property
    def describer(self) -> Describer:
        """What describes the queries: the same that described the photos."""
        if self._describer is None:
            fields = self._now.fields
            source = fields["backbone"]
            if source is None:
                raise InvalidInput(
                    f"{self.path} was made by a describer of its maker's own; give the same to Index.open(describer=…)."
                )
            self._describer = self._same(
                load_describer(source, whitening=self._now.whitening, **fields["describer_settings"])
            )
        return self._describer

    def _same(self, describer: Describer) -> Describer:
        stored, given = self._now.fields["describer"], describer.fingerprint()
        if stored["sha256"] != given["sha256"]:
            differ = ", ".join(key for key in stored if key != "sha256" and stored.get(key) != given.get(key))
            raise InvalidInput(
                f"{self.path} was made by {stored['name']}; queries of this {given['name']} cannot be compared "
                f"with it ({differ} differ). Use the same backbone and settings."
            )
        return describer

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def sync(self, *, progress: Progress | None = None) -> Changes:
        """Bring the index up to date with its folder: describe what is new, forget what is gone, build the graph anew.

        Photos whose size and time, or content, are as they were are not described again.
        """
        now = self._now
        before = Before(now.catalogue, now.manifold.layout_.starts, now.manifold.vectors_, now.boxes)
        parameters = Manifold(**now.fields["manifold"])
        kept = {name: value for name, value in now.fields.items() if name not in ("root", "manifold")}
        changes = build(self.path, self.root, self.describer, parameters, kept, before=before, progress=progress)
        self.reload()
        return changes

    def reload(self) -> None:
        """Move to the newest generation on disk; searches under way and hits in hand keep theirs."""
        self._now = Generation.read(self.path, verify=False)

    def info(self) -> dict[str, Any]:
        """Return counts, parameters and the health of the graph, ready for JSON."""
        degrees = np.diff(self.manifold.S_.indptr)
        return {
            "path": str(self.path),
            "photos_folder": str(self.root),
            "generation": self.generation,
            "made_by": self._now.fields["made_by"],
            "photos": len(self.catalogue),
            "regions": len(self.boxes),
            "edges": int(self.manifold.S_.nnz // 2),
            "edges_a_region": float(degrees.mean()),
            "isolated_regions": int((degrees == 0).sum()),
            "bytes": sum(file.stat().st_size for file in self.path.iterdir() if file.is_file()),
            "describer": self._now.fields["describer"],
            "manifold": self._now.fields["manifold"],
            "skipped": [{"key": one.key, "reason": one.reason} for one in self.catalogue.skipped],
        }

    def __len__(self) -> int:
        return len(self.catalogue)


def _place(now: Generation, region: int) -> Place:
    number = int(np.searchsorted(now.manifold.layout_.starts, region, side="right")) - 1
    return Place(now.catalogue[number].key, box_of(now.boxes[region]))


def _described_by(source: str, whiten: str | os.PathLike[str], photos: Path, progress: Progress | None) -> Describer:
    """Return a describer with the whitening asked for, learnt from the photos if it must be."""
    if whiten == "shipped":
        return load_describer(source)
    if whiten == "none":
        return load_describer(source, whitening=None)
    if whiten == "learn":
        found, _ = listed(photos)
        if not found:
            raise InvalidInput(f"{photos} has no photos to learn a whitening from; give a folder with some hundred.")
        report = progress or (lambda *_: None)
        bare = load_describer(source, whitening=None)
        learnt = whitening_from_photos(found, bare, progress=lambda done, total: report("whitening", done, total))
        return load_describer(source, whitening=learnt)
    return load_describer(source, whitening=Whitening.load(whiten))


def _fields(source: str | None, describer: Describer) -> dict[str, Any]:
    settings = {
        name: getattr(describer, name) for name in ("pooling", "p", "scales", "overlap", "long_side", "smallest_side")
    }
    where = str(Path(source).resolve()) if source is not None and Path(source).suffix else source
    return {
        "made_by": f"manifind {VERSION}",
        "backbone": where,
        "describer": describer.fingerprint(),
        "describer_settings": settings,
    }
