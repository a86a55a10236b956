"""Photo -> regions: the network, the grid, pooling and whitening in one call.

>>> extractor = load_extractor()                   # a network and its whitening that come with manifind
>>> regions = extractor.extract(photo)             # (h, w, 3) uint8
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

from manifind.checks import check_choice, check_float, check_int
from manifind.errors import InvalidInputError
from manifind.features.backbone import (
    DEFAULT,
    NETWORKS,
    Backbone,
    OnnxBackbone,
    Photo,
    available_cores,
    check_photo,
    checksum_of,
    load_backbone,
    shipped_networks,
)
from manifind.features.grid import region_grid, rescale_boxes, to_pixels
from manifind.features.moments import Moments
from manifind.features.pooling import GENERALISED, POOLINGS, pool
from manifind.features.whitening import Whitening, unit_rows
from manifind.types import FloatArray

SHIPPED_POOLING = "gem 3"
"""What the whitenings that come with manifind were learnt on."""

ONE_SCALE = (1.0,)
SCALES = (1.0, 0.5**0.5, 0.5)
"""Default image scales of an index: what is large in one photo is small in another."""

CHECKSUM_NAMES = {"grid_levels": "scales", "scales": "zooms"}
"""The names under which these facts enter the checksum of a fingerprint: stored indexes have checksums of these."""


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of one photo, the whole photo first."""

    vectors: FloatArray
    """(r, d) unit rows."""
    boxes: FloatArray
    """(r, 4): x0, y0, x1, y1 in pixels of the photo as it was given."""
    local_features: Any = None
    """The local features of the photo, where the extractor makes them too (`RegionExtractor.extract_local`)."""


class RegionExtractor:
    """Extracts the regions of photos and their descriptors.

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
    grid_levels, overlap : int, float
        The grid: sizes of squares, and how much the largest share with their neighbours.
    long_side : int, optional
        Photos with a longer side than this are shrunk to it; by default as the backbone says.
    smallest_side : int, optional
        Photos with a shorter side than this are enlarged to it as far as `long_side` allows; by default as the
        backbone says.
    scales : sequence of float
        The photo is seen at these parts of the size that `long_side` gives it. Each region is pooled from every map by
        the same box, and the mean of its unit vectors stands for it. The first decides which regions there are.
    """

    uses_device = False
    """Whether another device than the processor extracts, so that the processor is free to read photos."""
    extract_local: Callable[..., Sequence[Any]] | None = None
    """Extracts local features of photos on the same device, if any."""

    def __init__(
        self,
        backbone: Backbone,
        whitening: Whitening | None = None,
        *,
        pooling: str | None = None,
        p: float = 3.0,
        grid_levels: int = 3,
        overlap: float = 0.4,
        long_side: int | None = None,
        smallest_side: int | None = None,
        scales: Sequence[float] = ONE_SCALE,
    ) -> None:
        spec = backbone.spec
        self.backbone = backbone
        self.whitening = whitening
        self.pooling = check_choice(pooling or ("spoc" if spec.patch else "gem"), POOLINGS, "pooling")
        self.p = check_float(p, "p", above=0)
        self.grid_levels = check_int(grid_levels, "grid_levels", least=0)
        self.overlap = check_float(overlap, "overlap", above=-1, below=1)
        self.long_side = spec.long_side if long_side is None else check_int(long_side, "long_side", least=spec.stride)
        self.smallest_side = (
            spec.smallest_side if smallest_side is None else check_int(smallest_side, "smallest_side", least=0)
        )
        self.scales = _check_scales(scales)
        if whitening is not None and len(whitening.mean) != spec.channels:
            raise InvalidInputError(
                f"the whitening takes {len(whitening.mean)} dimensions but backbone {spec.name} gives {spec.channels}; "
                "give the whitening that was learnt on this backbone, or none."
            )
        if whitening is not None and whitening.pooling not in ("", self.pooled_by):
            raise InvalidInputError(
                f"the whitening was learnt on vectors pooled by {whitening.pooling} and pooling is {self.pooled_by}; "
                "give the whitening that was learnt on this pooling, or none."
            )

    @property
    def pooled_by(self) -> str:
        """How responses become a vector, in a word or two: a whitening is for one way alone."""
        return f"{self.pooling} {self.p:g}" if self.pooling in GENERALISED else self.pooling

    def with_whitening(self, whitening: Whitening | None) -> "RegionExtractor":
        """Return an extractor that differs from this one in its whitening alone."""
        return RegionExtractor(self.backbone, whitening, **self.settings)

    def for_threads(self) -> tuple["RegionExtractor", int]:
        """Return an equal extractor, and how many threads may use it at once, each for a photo.

        A network in an ONNX file is then run by the thread that calls it; any other, and an extractor of another class,
        is left to one thread at a time.
        """
        if not isinstance(self.backbone, OnnxBackbone) or type(self) is not RegionExtractor:
            return self, 1
        return RegionExtractor(self.backbone.for_threads(), self.whitening, **self.settings), available_cores()

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen beside the backbone and the whitening, by the names of the parameters."""
        names = ("pooling", "p", "grid_levels", "overlap", "long_side", "smallest_side")
        chosen = {name: getattr(self, name) for name in names}
        return chosen if self.scales == ONE_SCALE else {**chosen, "scales": list(self.scales)}

    @property
    def dimension(self) -> int:
        """Dimensions of a descriptor."""
        return self.backbone.spec.channels if self.whitening is None else self.whitening.project.shape[1]

    def extract(self, photo: Photo, *, scale: float | None = None) -> Regions:
        """Extract the regions of one upright RGB photo, (h, w, 3) uint8.

        `scale` resizes by this factor instead of by what the photo's size asks for: a part cut out of a large photo is
        then seen at the size that it has in the whole.
        """
        photo = check_photo(photo)
        pooled, boxes = self._pooled(photo, scale)
        vectors = unit_rows(pooled)
        return Regions(vectors if self.whitening is None else self.whitening.apply(vectors), boxes)

    def begin(self, photo: Photo) -> Callable[[], Regions]:
        """Return a function that returns the photo's regions; subclasses may begin the work at once."""
        return lambda: self.extract(photo)

    def extract_unwhitened(self, photo: Photo) -> FloatArray:
        """Return the (r, C) unit vectors of a photo's regions before whitening: what a whitening is learnt from."""
        return unit_rows(self._pooled(check_photo(photo), None)[0])

    def _pooled(self, photo: Photo, scale: float | None) -> tuple[FloatArray, FloatArray]:
        size = photo.shape[0], photo.shape[1]
        height, width = self.seen_size(*size, scale=scale)
        seen = resized(photo, height, width)
        maps = [
            self.backbone.features(resized(seen, self._side(height * scale), self._side(width * scale)))
            for scale in self.scales
        ]
        sizes = [(features.shape[1], features.shape[2]) for features in maps]
        cells = region_grid(*sizes[0], levels=self.grid_levels, overlap=self.overlap)
        pooled = [
            pool(features, rescale_boxes(cells, sizes[0], map_size), self.pooling, p=self.p)
            for features, map_size in zip(maps, sizes, strict=True)
        ]
        if not all(np.isfinite(vectors).all() for vectors in pooled):
            raise InvalidInputError(
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
            factor = check_float(scale, "scale", above=0)
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
            "grid_levels": self.grid_levels,
            "overlap": self.overlap,
            "long_side": self.long_side,
            "smallest_side": self.smallest_side,
            "whitening": None if self.whitening is None else self.whitening.sha256,
            "dimension": self.dimension,
        }
        if self.scales != ONE_SCALE:
            made_by["scales"] = list(self.scales)
        named = {CHECKSUM_NAMES.get(fact, fact): value for fact, value in made_by.items()}
        checksum = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
        return {"name": name, **made_by, "sha256": checksum}


def load_extractor(
    name_or_path: str | os.PathLike[str] = DEFAULT, *, threads: int | None = None, **settings: Any
) -> RegionExtractor:
    """Return an extractor with the network of this name, or of this ONNX file or retrieval checkpoint (``.pth``).

    A network that comes with manifind brings its whitening; a checkpoint its pooling and, where it has one, its
    whitening; an ONNX file of the user's brings none. What is brought is for one way of pooling: where `settings` ask
    for another, descriptors are not whitened. `settings` are `RegionExtractor`'s and go before what is brought.

    Without a name it is ``mobilenet_v2`` in single precision, and photos are seen at one size. Unless it is told
    otherwise, an index uses ``mobilenet_v2_int8``, the same network in 8 bits, at three sizes (`SCALES`), with
    a whitening of its own. Vectors of the two cannot be compared: ``Index.open(path).extractor`` is that of an index.
    """
    if Path(name_or_path).suffix in {".pth", ".pt"}:
        from manifind.features.torch_backbone import load_retrieval_checkpoint

        trained = load_retrieval_checkpoint(name_or_path)
        brought = {"whitening": trained.whitening, "pooling": trained.pooling, "p": trained.p}
        extractor = RegionExtractor(trained.backbone, **{**brought, "whitening": None, **settings})
        fits = extractor.pooled_by == RegionExtractor(trained.backbone, pooling=trained.pooling, p=trained.p).pooled_by
        return extractor.with_whitening(trained.whitening) if fits and "whitening" not in settings else extractor
    extractor = RegionExtractor(load_backbone(name_or_path, threads=threads), **settings)
    if "whitening" in settings or name_or_path not in shipped_networks() or extractor.pooled_by != SHIPPED_POOLING:
        return extractor
    return extractor.with_whitening(Whitening.load(NETWORKS / f"{name_or_path}_whitening.npz"))


def shipped_moments(extractor: RegionExtractor) -> Moments | None:
    """Return the moments of vectors like these that come with manifind: of this network, pooled the same way."""
    for name in shipped_networks():
        file = NETWORKS / f"{name}_moments.npz"
        if file.is_file() and checksum_of(NETWORKS / f"{name}.onnx") == extractor.backbone.spec.sha256:
            moments = Moments.load(file)
            return moments if moments.pooling == extractor.pooled_by else None
    return None


def resized(photo: Photo, height: int, width: int) -> Photo:
    """Return the photo at another size, (height, width, 3), smoothed so that shrinking leaves no stairs.

    By bicubic interpolation, as the photos were from which the shipped whitening was learnt.
    """
    if photo.shape[:2] == (height, width):
        return photo
    return np.asarray(Image.fromarray(photo).resize((width, height), Image.Resampling.BICUBIC))


def _check_scales(scales: Sequence[float]) -> tuple[float, ...]:
    if not isinstance(scales, list | tuple) or not scales:
        raise InvalidInputError(f"scales is {scales!r}; give a list of parts of a photo's size, [1, 0.71, 0.5] say.")
    return tuple(check_float(scale, "scales", above=0, below=4) for scale in scales)
