"""Find every photo that contains this object, however small: diffusion on region manifolds."""

from manifind.compact import compact
from manifind.errors import Damaged, InvalidInput, ManifindError, ManifindWarning, NotFitted
from manifind.manifold import Manifold
from manifind.ranking import Ranking

__version__ = "0.1.0.dev0"

__all__ = [
    "Damaged",
    "InvalidInput",
    "ManifindError",
    "ManifindWarning",
    "Manifold",
    "NotFitted",
    "Ranking",
    "compact",
]
