"""How photos become an index."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from manifind.describe import Describer, region_grid
from manifind.manifold import Manifold

NOTES = ("made_by", "backbone", "whitening")
"""What else a manifest says."""


@dataclass(frozen=True)
class Recipe:
    """All that the photos' descriptions and the graph depend on, besides the photos."""

    root: Path
    describer: Describer
    parameters: dict[str, Any]
    """Of the manifold."""
    means: int | None
    """Means of the mixture that stands for a photo's regions; None for the regions themselves."""
    notes: dict[str, Any]
    """What else the manifest is to say: who made it, and where the describer came from."""

    @classmethod
    def of_fields(cls, fields: dict[str, Any], describer: Describer, root: Path | None = None) -> Self:
        """Return the recipe that a manifest speaks of; `root` where the photos are elsewhere now."""
        notes = {name: fields[name] for name in NOTES}
        return cls(root or Path(fields["root"]), describer, fields["manifold"], fields["means"], notes)

    def manifold(self, **changed: Any) -> Manifold:
        """Return a manifold with the parameters, checked; it has no collection yet."""
        manifold = Manifold(**{**self.parameters, **changed})
        manifold.check_params()
        return manifold

    @property
    def fields(self) -> dict[str, Any]:
        """What the manifest says of it."""
        parameters = asdict(self.manifold().check_params())
        del parameters["memory"]  # a matter of the machine, not of the index
        return {
            **self.notes,
            "root": str(self.root.resolve()),
            "describer": self.describer.fingerprint(),
            "describer_settings": self.describer.settings,
            "means": self.means,
            "manifold": parameters,
        }

    @property
    def fingerprint(self) -> str:
        """Equal where descriptions are."""
        return f"{self.describer.fingerprint()['sha256']} means {self.means}"

    @property
    def regions_a_photo(self) -> int:
        """How many regions a photo of 4:3 has."""
        regions = len(region_grid(24, 32, scales=self.describer.scales, overlap=self.describer.overlap))
        return regions if self.means is None else min(regions, self.means)
