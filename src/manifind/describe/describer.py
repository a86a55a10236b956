"""Photo -> regions: the network, the grid, pooling and whitening in one call.

>>> describer = load_describer()                   # a network and its whitening that come with manifind
>>> regions = describer.describe(photo)            # (h, w, 3) uint8
>>> regions.vectors, regions.boxes                 # (r, d) unit rows, (r, 4) pixels of the photo given
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from manifind.checks import choice, real_number, whole_number
from manifind.describe.backbone import (
    DEFAULT,
    NETWORKS,
    Backbone,
    OnnxBackbone,
    Photo,
    available_cores,
    checked_photo,
    checksum_of,
    load_backbone,
    shipped_networks,
)
from manifind.describe.moments import Moments
from manifind.describe.pooling import GENERALISED, POOLINGS, pool
from manifind.describe.regions import on_another_map, region_grid, to_pixels
from manifind.describe.whitening import Whitening, unit_rows
from manifind.errors import InvalidInput
from manifind.types import FloatArray

SHIPPED_POOLING = "gem 3"
"""What the whitenings that come with manifind were learnt on."""

ONE_ZOOM = (1.0,)
ZOOMS = (1.0, 0.5**0.5, 0.5)
"""Sizes at which photos are seen for an index unless told otherwise: what is large in one photo is small in another."""


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of one photo, the whole photo first."""

    vectors: FloatArray
    """(r, d) unit rows."""
    boxes: FloatArray
    """(r, 4): x0, y0, x1, y1 in pixels of the photo as it was given."""
    beside: Any = None
    """What the describer made of the photo beside its regions, if anything (`Describer.beside`)."""


class Describer:
    """Describes photos by their regions.

    Parameters
    ----------
    backbone : Backbone
        The network.
    whitening : Whitening, optional
        Learnt on what this network and pooling give; without it, descriptors are the pooled responses at unit norm.
    pooling : {"gem", "mac", "spoc", "crow", "signed-gem"}, optional
        How the responses in a region become one vector: by default "gem", and "spoc" for a network of tokens, which may
        be negative.
    p : float
        GeM's exponent.
    scales, overlap : int, float
        The grid: sizes of squares, and how much the largest share with their neighbours.
    long_side : int, optional
        Photos with a longer side than this are shrunk to it; by default as the backbone says.
    smallest_side : int, optional
        Photos with a shorter side than this are enlarged to it as far as `long_side` allows; by default as the
        backbone says.
    zooms : sequence of float
        The photo is seen at these parts of the size that `long_side` gives it. Each region is pooled from every map by
        the same box, and the mean of its unit vectors stands for it. The first decides which regions there are.
    """

    apart = False
    """Whether the work is done elsewhere than on the processor, which is then free to read photos."""
    beside: Callable[..., Sequence[Any]] | None = None
    """What makes something more of photos, where they lie, than their regions."""

    def __init__(
        self,
        backbone: Backbone,
        whitening: Whitening | None = None,
        *,
        pooling: str | None = None,
        p: float = 3.0,
        scales: int = 3,
        overlap: float = 0.4,
        long_side: int | None = None,
        smallest_side: int | None = None,
        zooms: Sequence[float] = ONE_ZOOM,
    ) -> None:
        spec = backbone.spec
        self.backbone = backbone
        self.whitening = whitening
        self.pooling = choice(pooling or ("spoc" if spec.patch else "gem"), POOLINGS, "pooling")
        self.p = real_number(p, "p", above=0)
        self.scales = whole_number(scales, "scales", least=0)
        self.overlap = real_number(overlap, "overlap", above=-1, below=1)
        self.long_side = (
            spec.long_side if long_side is None else whole_number(long_side, "long_side", least=spec.stride)
        )
        self.smallest_side = (
            spec.smallest_side if smallest_side is None else whole_number(smallest_side, "smallest_side", least=0)
        )
        self.zooms = _checked_zooms(zooms)
        if whitening is not None and len(whitening.mean) != spec.channels:
            raise InvalidInput(
                f"the whitening takes {len(whitening.mean)} dimensions but backbone {spec.name} gives {spec.channels}; "
                "give the whitening that was learnt on this backbone, or none."
            )
        if whitening is not None and whitening.pooling not in ("", self.pooled_by):
            raise InvalidInput(
                f"the whitening was learnt on vectors pooled by {whitening.pooling} and pooling is {self.pooled_by}; "
                "give the whitening that was learnt on this pooling, or none."
            )

    @property
    def pooled_by(self) -> str:
        """How responses become a vector, in a word or two: a whitening is for one way alone."""
        return f"{self.pooling} {self.p:g}" if self.pooling in GENERALISED else self.pooling

    def with_whitening(self, whitening: Whitening | None) -> "Describer":
        """Return a describer that differs from this one in its whitening alone."""
        return Describer(self.backbone, whitening, **self.settings)

    def for_threads(self) -> tuple["Describer", int]:
        """Return a describer that gives the same, and how many threads may use it at once, each for a photo.

        A network in an ONNX file is then run by the thread that calls it; any other, and a describer of somebody's own
        kind, is left to one thread at a time.
        """
        if not isinstance(self.backbone, OnnxBackbone) or type(self) is not Describer:
            return self, 1
        return Describer(self.backbone.for_threads(), self.whitening, **self.settings), available_cores()

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen beside the backbone and the whitening, by the names of the parameters."""
        names = ("pooling", "p", "scales", "overlap", "long_side", "smallest_side")
        chosen = {name: getattr(self, name) for name in names}
        return chosen if self.zooms == ONE_ZOOM else {**chosen, "zooms": list(self.zooms)}

    @property
    def dimension(self) -> int:
        """Dimensions of a descriptor."""
        return self.backbone.spec.channels if self.whitening is None else self.whitening.project.shape[1]

    def describe(self, photo: Photo, *, scale: float | None = None) -> Regions:
        """Describe one upright RGB photo, (h, w, 3) uint8.

        `scale` resizes by this factor instead of by what the photo's size asks for: a part cut out of a large photo is
        then seen at the size that it has in the whole.
        """
        photo = checked_photo(photo)
        pooled, boxes = self._pooled(photo, scale)
        vectors = unit_rows(pooled)
        return Regions(vectors if self.whitening is None else self.whitening.apply(vectors), boxes)

    def begin(self, photo: Photo) -> Callable[[], Regions]:
        """Begin to describe a photo, and return what waits for its regions; here they are made when it is called."""
        return lambda: self.describe(photo)

    def unwhitened(self, photo: Photo) -> FloatArray:
        """Return the (r, C) unit vectors of a photo's regions before whitening: what a whitening is learnt from."""
        return unit_rows(self._pooled(checked_photo(photo), None)[0])

    def _pooled(self, photo: Photo, scale: float | None) -> tuple[FloatArray, FloatArray]:
        size = photo.shape[0], photo.shape[1]
        height, width = self.seen_size(*size, scale=scale)
        seen = resized(photo, height, width)
        maps = [
            self.backbone.features(resized(seen, self._side(height * zoom), self._side(width * zoom)))
            for zoom in self.zooms
        ]
        sizes = [(features.shape[1], features.shape[2]) for features in maps]
        cells = region_grid(*sizes[0], scales=self.scales, overlap=self.overlap)
        pooled = [
            pool(features, on_another_map(cells, sizes[0], own), self.pooling, p=self.p)
            for features, own in zip(maps, sizes, strict=True)
        ]
        if not all(np.isfinite(vectors).all() for vectors in pooled):
            raise InvalidInput(
                f"backbone {self.backbone.spec.name} gave NaN or infinite responses; check the scaling of its input."
            )
        boxes = to_pixels(cells, sizes[0], size)
        if len(pooled) == 1:
            return pooled[0], boxes
        return np.sum([unit_rows(vectors) for vectors in pooled], axis=0, dtype=np.float32), boxes

    def seen_size(self, height: int, width: int, *, scale: float | None = None) -> tuple[int, int]:
        """Return the (height, width) at which the network sees a photo of this size.

        A photo whose longer side is beyond `long_side` is shrunk to it; one whose shorter side is below
        `smallest_side` is enlarged to it as far as `long_side` allows. No side gets shorter than one cell of the map.
        A network of tokens sees whole patches: sides are rounded to the nearest number of them.
        """
        longer, shorter = max(height, width), min(height, width)
        if scale is not None:
            factor = real_number(scale, "scale", above=0)
        elif longer > self.long_side:
            factor = self.long_side / longer
        else:
            factor = max(1.0, min(self.smallest_side / shorter, self.long_side / longer))
        return self._side(height * factor), self._side(width * factor)

    def _side(self, length: float) -> int:
        """Return the side nearest to this length that the network can see: one cell at least, or whole patches."""
        spec = self.backbone.spec
        whole = spec.patch or 1
        return max(spec.stride, whole * round(length / whole))

    def fingerprint(self) -> dict[str, Any]:
        """Return everything that descriptors depend on, ready for JSON, with a checksum of it under ``sha256``.

        Vectors are comparable only where these checksums are equal.
        """
        spec = dataclasses.asdict(self.backbone.spec)
        # A network may be renamed, and its usual sizes are replaced by those in use.
        name = spec.pop("name")
        del spec["long_side"], spec["smallest_side"]
        if not spec["patch"]:
            del spec["patch"]
        made_by: dict[str, Any] = {
            "backbone": {key: list(value) if isinstance(value, tuple) else value for key, value in spec.items()},
            "pooling": self.pooling,
            "p": self.p if self.pooling in GENERALISED else None,
            "scales": self.scales,
            "overlap": self.overlap,
            "long_side": self.long_side,
            "smallest_side": self.smallest_side,
            "whitening": None if self.whitening is None else self.whitening.sha256,
            "dimension": self.dimension,
        }
        if self.zooms != ONE_ZOOM:
            made_by["zooms"] = list(self.zooms)
        checksum = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
        return {"name": name, **made_by, "sha256": checksum}


def load_describer(
    name_or_path: str | os.PathLike[str] = DEFAULT, *, threads: int | None = None, **settings: Any
) -> Describer:
    """Return a describer with the network of this name, or of this ONNX file or retrieval checkpoint (``.pth``).

    A network that comes with manifind brings its whitening; a checkpoint its pooling and, where it has one, its
    whitening; an ONNX file of the user's brings none. What is brought is for one way of pooling: where `settings` ask
    for another, descriptors are not whitened. `settings` are `Describer`'s and go before what is brought.

    Without a name it is ``mobilenet_v2`` in single precision, and photos are seen at one size. Unless it is told
    otherwise, an index describes by ``mobilenet_v2_int8``, the same network in 8 bits, at three sizes (`ZOOMS`), with
    a whitening of its own. Vectors of the two cannot be compared: ``Index.open(path).describer`` describes as an index.
    """
    if Path(name_or_path).suffix in {".pth", ".pt"}:
        from manifind.describe.torch_backbone import load_retrieval_checkpoint

        trained = load_retrieval_checkpoint(name_or_path)
        brought = {"whitening": trained.whitening, "pooling": trained.pooling, "p": trained.p}
        made = Describer(trained.backbone, **{**brought, "whitening": None, **settings})
        fits = made.pooled_by == Describer(trained.backbone, pooling=trained.pooling, p=trained.p).pooled_by
        return made.with_whitening(trained.whitening) if fits and "whitening" not in settings else made
    made = Describer(load_backbone(name_or_path, threads=threads), **settings)
    if "whitening" in settings or name_or_path not in shipped_networks() or made.pooled_by != SHIPPED_POOLING:
        return made
    return made.with_whitening(Whitening.load(NETWORKS / f"{name_or_path}_whitening.npz"))


def shipped_moments(describer: Describer) -> Moments | None:
    """Return the moments of vectors like these that come with manifind: of this network, pooled the same way."""
    for name in shipped_networks():
        file = NETWORKS / f"{name}_moments.npz"
        if file.is_file() and checksum_of(NETWORKS / f"{name}.onnx") == describer.backbone.spec.sha256:
            moments = Moments.load(file)
            return moments if moments.pooling == describer.pooled_by else None
    return None


def resized(photo: Photo, height: int, width: int) -> Photo:
    """Return the photo at another size, (height, width, 3), smoothed so that shrinking leaves no stairs.

    By bicubic interpolation, as the photos were from which the shipped whitening was learnt.
    """
    if photo.shape[:2] == (height, width):
        return photo
    return np.asarray(Image.fromarray(photo).resize((width, height), Image.Resampling.BICUBIC))


def _checked_zooms(zooms: Sequence[float]) -> tuple[float, ...]:
    if not isinstance(zooms, list | tuple) or not zooms:
        raise InvalidInput(f"zooms is {zooms!r}; give a list of parts of a photo's size, [1, 0.71, 0.5] say.")
    return tuple(real_number(zoom, "zooms", above=0, below=4) for zoom in zooms)
