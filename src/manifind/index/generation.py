"""One state of an index, as it was written."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from manifind.describe import Whitening
from manifind.errors import Damaged
from manifind.graph import UNKNOWN, Built
from manifind.index.catalogue import Catalogue
from manifind.manifold import BUILT, Manifold
from manifind.storage import store
from manifind.types import FloatArray

KIND, FORMAT = "index", 2
CATALOGUE = "images.sqlite"


@dataclass(frozen=True)
class Generation:
    """One state of an index: whoever has it keeps it, whatever is written meanwhile."""

    number: int
    stamp: str
    """No other generation has the same."""
    fields: dict[str, Any]
    """What its recipe says of it."""
    catalogue: Catalogue
    manifold: Manifold
    boxes: FloatArray
    whitening: Whitening | None
    sizes: dict[str, int]
    """Bytes of each file."""
    others: dict[str, Any] = field(default_factory=dict)
    """What describes queries, and what the methods besides regional diffusion need: made at their first use."""

    @classmethod
    def read(cls, path: Path, *, verify: bool = False) -> Self:
        """Open the newest generation of the index at `path`; no array is read, unless to `verify` its checksum."""
        while True:
            stored = store.read(path, KIND, FORMAT, verify=verify)
            try:
                return cls._of(path, stored)
            except Damaged:
                # The catalogue is opened by name: a writer may have taken it away since.
                if store.read_manifest(path, KIND, FORMAT)["stamp"] == stored.stamp:
                    raise

    @classmethod
    def _of(cls, path: Path, stored: store.Stored) -> Self:
        arrays, fields = stored.arrays, dict(stored.fields)
        try:
            # Before there was a choice, the lists were those of the parameter.
            built = fields.pop(BUILT, None) or Built.by(fields["manifold"].get("graph", UNKNOWN))._asdict()
            manifold = Manifold.from_arrays({**fields["manifold"], BUILT: built}, arrays)
            catalogue = Catalogue.open(stored.files[CATALOGUE])
            boxes = arrays["boxes"]
            learnt = "whitening_mean" in arrays
            whitening = Whitening(arrays["whitening_mean"], arrays["whitening_project"]) if learnt else None
        except Damaged as error:
            raise Damaged(f"{path}: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(
                f"{path} does not say all of what an index is ({error}); repair it or make it again."
            ) from error
        if boxes.shape != (len(manifold.vectors_), 4) or len(catalogue) != len(manifold.layout_.images):
            raise Damaged(f"{path} has boxes or photos of another collection; repair it or make it again.")
        return cls(stored.generation, stored.stamp, fields, catalogue, manifold, boxes, whitening, stored.sizes)
