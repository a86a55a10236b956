"""How photos become an index."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from manifind.describe import Describer, Moments, Whitening, region_grid, shipped_moments, whitening_of
from manifind.describe.moments import DIMENSION, PRIOR
from manifind.index.state.kept import Keeping
from manifind.index.state.manifest import LEARNT, Fingerprint, Manifest, WhiteningOrigin, settled_parameters
from manifind.index.state.parameters import CHOSEN, chosen_parameters
from manifind.kernels import CPU
from manifind.manifold import Manifold
from manifind.version import VERSION


@dataclass(frozen=True)
class Learning:
    """How a whitening is to be learnt from the photos of an index."""

    prior: Moments | None = None
    """Moments towards which those of the photos are shrunk."""
    weight: float = PRIOR
    """Regions whose moments count as much."""
    dimension: int = DIMENSION

    def whitening(self, own: Moments) -> Whitening:
        """Return the whitening that photos of these moments teach."""
        mixed = own if self.prior is None else own.mixed_with(self.prior, self.weight)
        return whitening_of(mixed, min(self.dimension, len(own.mean)))


@dataclass(frozen=True)
class Recipe:
    """All that the photos' descriptions and the graph depend on, besides the photos."""

    root: Path
    describer: Describer
    parameters: dict[str, Any]
    """Of the manifold; those that are missing are chosen by the number of photos."""
    means: int | None
    """Means of the mixture that stands for a photo's regions; None for the regions themselves."""
    backbone: str | None
    """The network's name or file; None where the describer is its maker's own."""
    whitening: WhiteningOrigin
    made_by: str = f"manifind {VERSION}"
    learning: Learning | None = None
    """How the whitening is to be learnt, until it is: the describer has none so far."""
    chosen_for: int | None = None
    """For how many photos parameters were chosen, where they were."""
    geometry: Keeping | None = None
    """What is kept of the photos' local features; None for nothing."""
    frames: float | None = None
    """Seconds between two frames of a film that are taken for photos; None for no films."""

    @classmethod
    def of(cls, manifest: Manifest, describer: Describer, root: Path | None = None, *, device: str = CPU) -> Self:
        """Return the recipe that a manifest speaks of; `root` where the photos are elsewhere now."""
        return cls(
            root or manifest.root,
            describer,
            {**manifest.parameters, "device": device},
            manifest.means,
            manifest.backbone,
            manifest.whitening,
            manifest.made_by,
            chosen_for=manifest.chosen_for,
            geometry=manifest.geometry,
            frames=manifest.frames,
        )

    def for_photos(self, photos: int) -> Self:
        """Return the recipe with every parameter settled, for so many photos."""
        missing = [name for name in CHOSEN if name not in self.parameters]
        if not missing:
            return self
        return replace(self, parameters=chosen_parameters(self.parameters, photos), chosen_for=photos)

    def manifold(self, **changed: Any) -> Manifold:
        """Return a manifold with the parameters, checked; it has no collection yet."""
        manifold = Manifold(**{**self.parameters, **changed})
        manifold.check_params()
        return manifold

    def to_learn(self) -> Self:
        """Return the recipe with its whitening still to be learnt, shrunk as it was; by default if it never was."""
        bare, before = self.describer.with_whitening(None), self.whitening
        alone = before.source == LEARNT and before.prior is None
        prior = None if alone else shipped_moments(bare)
        weight = PRIOR if before.prior is None else before.prior
        dimension = DIMENSION if self.describer.whitening is None else self.describer.dimension
        return replace(self, describer=bare, learning=Learning(prior, weight, dimension))

    @property
    def manifest(self) -> Manifest:
        """What the index says of it."""
        return Manifest(
            self.root.resolve(),
            self.made_by,
            self.backbone,
            self.whitening,
            Fingerprint.of(self.describer),
            self.describer.settings,
            self.means,
            settled_parameters(self.manifold()),
            chosen_for=self.chosen_for,
            geometry=self.geometry,
            frames=self.frames,
        )

    @property
    def fingerprint(self) -> str:
        """Equal where descriptions are, and what is kept beside them."""
        kept = None if self.geometry is None else self.geometry.fields
        return f"{self.describer.fingerprint()['sha256']} means {self.means} local {kept}"

    @property
    def dimension(self) -> int:
        """Dimensions that the descriptors of the index will have."""
        channels = self.describer.dimension
        return channels if self.learning is None else min(self.learning.dimension, channels)

    @property
    def regions_a_photo(self) -> int:
        """How many regions a photo of 4:3 has."""
        regions = len(region_grid(24, 32, scales=self.describer.scales, overlap=self.describer.overlap))
        return regions if self.means is None else min(regions, self.means)
