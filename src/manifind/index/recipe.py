"""How photos become an index."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from manifind.describe import Describer, region_grid
from manifind.index.manifest import Fingerprint, Manifest, WhiteningOrigin, settled_parameters
from manifind.manifold import Manifold
from manifind.version import VERSION


@dataclass(frozen=True)
class Recipe:
    """All that the photos' descriptions and the graph depend on, besides the photos."""

    root: Path
    describer: Describer
    parameters: dict[str, Any]
    """Of the manifold."""
    means: int | None
    """Means of the mixture that stands for a photo's regions; None for the regions themselves."""
    backbone: str | None
    """The network's name or file; None where the describer is its maker's own."""
    whitening: WhiteningOrigin
    made_by: str = f"manifind {VERSION}"

    @classmethod
    def of(cls, manifest: Manifest, describer: Describer, root: Path | None = None) -> Self:
        """Return the recipe that a manifest speaks of; `root` where the photos are elsewhere now."""
        return cls(
            root or manifest.root,
            describer,
            dict(manifest.parameters),
            manifest.means,
            manifest.backbone,
            manifest.whitening,
            manifest.made_by,
        )

    def manifold(self, **changed: Any) -> Manifold:
        """Return a manifold with the parameters, checked; it has no collection yet."""
        manifold = Manifold(**{**self.parameters, **changed})
        manifold.check_params()
        return manifold

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
        )

    @property
    def fingerprint(self) -> str:
        """Equal where descriptions are."""
        return f"{self.describer.fingerprint()['sha256']} means {self.means}"

    @property
    def regions_a_photo(self) -> int:
        """How many regions a photo of 4:3 has."""
        regions = len(region_grid(24, 32, scales=self.describer.scales, overlap=self.describer.overlap))
        return regions if self.means is None else min(regions, self.means)
