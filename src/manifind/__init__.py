"""Find every photo that contains this object, however small: diffusion on region manifolds."""

from typing import TYPE_CHECKING, Any

from manifind.version import VERSION

if TYPE_CHECKING:
    from manifind.client import Client
    from manifind.errors import (
        DamagedError,
        InvalidInputError,
        ManifindError,
        ManifindWarning,
        MissingExtraError,
        NotFittedError,
        UnreadableImageError,
    )
    from manifind.gmm import compact
    from manifind.index import Hit, Index, SearchConfig, SearchResult
    from manifind.manifold import Manifold
    from manifind.ranking import Ranking

__version__ = VERSION

__all__ = [
    "Client",
    "DamagedError",
    "Hit",
    "Index",
    "InvalidInputError",
    "ManifindError",
    "ManifindWarning",
    "Manifold",
    "MissingExtraError",
    "NotFittedError",
    "Ranking",
    "SearchConfig",
    "SearchResult",
    "UnreadableImageError",
    "__version__",
    "compact",
]

_MODULES = {
    "Client": "client",
    "Hit": "index",
    "Index": "index",
    "Manifold": "manifold",
    "Ranking": "ranking",
    "SearchConfig": "index",
    "SearchResult": "index",
    "compact": "gmm",
}
"""The module that defines each public name; `manifind.errors` defines the others."""


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used: ``import manifind`` itself costs little."""
    if name not in __all__:
        raise AttributeError(f"module 'manifind' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"manifind.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
