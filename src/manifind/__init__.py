"""Find every photo that contains this object, however small: diffusion on region manifolds."""

from manifind.compact import compact
from manifind.errors import (
    Damaged,
    InvalidInput,
    ManifindError,
    ManifindWarning,
    MissingExtra,
    NotFitted,
    Unreadable,
)
from manifind.index import Hit, Index
from manifind.manifold import Manifold
from manifind.ranking import Ranking
from manifind.version import VERSION

__version__ = VERSION

__all__ = [
    "Damaged",
    "Hit",
    "Index",
    "InvalidInput",
    "ManifindError",
    "ManifindWarning",
    "Manifold",
    "MissingExtra",
    "NotFitted",
    "Ranking",
    "Unreadable",
    "__version__",
    "compact",
]
