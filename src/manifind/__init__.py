"""Find every photo that contains this object, however small: diffusion on region manifolds."""

from manifind.compact import compact
from manifind.errors import Damaged, InvalidInput, ManifindError, ManifindWarning, NotFitted
from manifind.manifold import Manifold
from manifind.ranking import Ranking
from manifind.version import VERSION

__version__ = VERSION

__all__ = [
    "Damaged",
    "InvalidInput",
    "ManifindError",
    "ManifindWarning",
    "Manifold",
    "NotFitted",
    "Ranking",
    "__version__",
    "compact",
]
