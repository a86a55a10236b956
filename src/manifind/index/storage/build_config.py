"""How photos become an index."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from manifind.features import Moments, RegionExtractor, Whitening, region_grid, shipped_moments, whitening_of
from manifind.features.moments import DIMENSION, PRIOR
from manifind.index.config import CHOSEN, IndexConfig, WhiteningCandidate, WhiteningConfig
from manifind.index.storage.local_features import LocalFeatureConfig
from manifind.index.storage.manifest import LEARNT, Fingerprint, Manifest, WhiteningOrigin, stored_parameters
from manifind.index.storage.snapshot import NullSimilarityConfig
from manifind.io.ignore import ALL_FILES, FileRules
from manifind.kernels import AUTO
from manifind.manifold import Manifold
from manifind.types import FloatArray
from manifind.version import VERSION


@dataclass(frozen=True)
class WhiteningTraining:
    """How a whitening is to be learnt from the photos of an index."""

    prior: Moments | None = None
    """Moments towards which those of the photos are shrunk."""
    weight: float = PRIOR
    """Regions whose moments count as much."""
    dimension: int = DIMENSION
    config: WhiteningConfig = field(default_factory=WhiteningConfig)
    """The candidates, where there is a prior, and how one is chosen."""

    def whitening(self, own: Moments) -> Whitening:
        """Return the whitening that photos of these moments teach where no verified photos choose one."""
        if self.prior is None:
            return whitening_of(own, min(self.dimension, len(own.mean)))
        return self.candidate(own, self.config.default)

    def candidate(
        self,
        own: Moments,
        candidate: WhiteningCandidate,
        differences: FloatArray | None = None,
        dimension: int | None = None,
    ) -> Whitening:
        """Return the whitening of a candidate; `differences` are of regions that verified photos have in common."""
        assert self.prior is not None  # noqa: S101 (candidates are mixtures with the prior)
        mixed = own.mixed_with(self.prior, self.weight, max_share=candidate.own)
        if differences is not None and candidate.differences:
            mixed = mixed.with_differences(differences, candidate.differences)
        return whitening_of(mixed, min(dimension or self.dimension, len(own.mean)), power=candidate.power)


@dataclass(frozen=True)
class BuildConfig:
    """All that the photos' descriptors and the graph depend on, besides the photos."""

    root: Path
    extractor: RegionExtractor
    parameters: dict[str, Any]
    """Of the manifold; those that are missing are chosen by the number of photos."""
    regions_per_image: int | None
    """Means of the mixture that stands for a photo's regions; None for the regions themselves."""
    backbone: str | None
    """The network's name or file; None for a custom extractor."""
    whitening: WhiteningOrigin
    made_by: str = f"manifind {VERSION}"
    learning: WhiteningTraining | None = None
    """How the whitening is to be learnt, until it is: the extractor has none so far."""
    chosen_for: int | None = None
    """For how many photos parameters were chosen, where they were."""
    local_features: LocalFeatureConfig | None = None
    """What is kept of the photos' local features; None for nothing."""
    frames: float | None = None
    """Seconds between two frames of a film that are taken for photos; None for no films."""
    files: FileRules = ALL_FILES
    """Which files of the folder count."""
    null_similarity: NullSimilarityConfig = field(default_factory=NullSimilarityConfig)

    @classmethod
    def of(
        cls, manifest: Manifest, extractor: RegionExtractor, root: Path | None = None, *, device: str = AUTO
    ) -> Self:
        """Return the config that a manifest speaks of; `root` where the photos are elsewhere now."""
        return cls(
            root or manifest.root,
            extractor,
            {**manifest.parameters, "device": device},
            manifest.regions_per_image,
            manifest.backbone,
            manifest.whitening,
            manifest.made_by,
            chosen_for=manifest.chosen_for,
            local_features=manifest.local_features,
            frames=manifest.frames,
            files=manifest.files,
        )

    def for_photos(self, photos: int) -> Self:
        """Return the config with every parameter settled, for so many photos."""
        missing = [name for name in CHOSEN if name not in self.parameters]
        if not missing:
            return self
        return replace(
            self, parameters=IndexConfig(manifold=self.parameters).resolve_parameters(photos), chosen_for=photos
        )

    def manifold(self, **changed: Any) -> Manifold:
        """Return a manifold with the parameters, checked; it has no collection yet."""
        manifold = Manifold(**{**self.parameters, **changed})
        manifold.check_params()
        return manifold

    def to_learn(self) -> Self:
        """Return the config with its whitening still to be learnt, shrunk as it was; by default if it never was."""
        bare, before = self.extractor.with_whitening(None), self.whitening
        alone = before.source == LEARNT and before.prior is None
        prior = None if alone else shipped_moments(bare)
        weight = PRIOR if before.prior is None else before.prior
        dimension = DIMENSION if self.extractor.whitening is None else self.extractor.dimension
        return replace(self, extractor=bare, learning=WhiteningTraining(prior, weight, dimension))

    @property
    def manifest(self) -> Manifest:
        """What the index says of it."""
        return Manifest(
            self.root.resolve(),
            self.made_by,
            self.backbone,
            self.whitening,
            Fingerprint.of(self.extractor),
            self.extractor.settings,
            self.regions_per_image,
            stored_parameters(self.manifold()),
            chosen_for=self.chosen_for,
            local_features=self.local_features,
            frames=self.frames,
            files=self.files,
        )

    @property
    def fingerprint(self) -> str:
        """Equal where the descriptors and the local features are equal."""
        kept = None if self.local_features is None else self.local_features.fields
        return f"{self.extractor.fingerprint()['sha256']} means {self.regions_per_image} local {kept}"

    @property
    def dimension(self) -> int:
        """Dimensions that the descriptors of the index will have."""
        channels = self.extractor.dimension
        return channels if self.learning is None else min(self.learning.dimension, channels)

    @property
    def regions_a_photo(self) -> int:
        """How many regions a photo of 4:3 has."""
        regions = len(region_grid(24, 32, levels=self.extractor.grid_levels, overlap=self.extractor.overlap))
        return regions if self.regions_per_image is None else min(regions, self.regions_per_image)
