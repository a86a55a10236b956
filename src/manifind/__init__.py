"""Find every photo that contains this object, however small: diffusion on region manifolds."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from manifind.version import VERSION

if TYPE_CHECKING:
    from manifind.client import Client
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
    from manifind.index import Answer, Hit, Index
    from manifind.manifold import Manifold
    from manifind.ranking import Ranking

__version__ = VERSION

__all__ = [
    "Answer",
    "Client",
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

_ROOMS = {
    "Answer": "index",
    "Client": "client",
    "Hit": "index",
    "Index": "index",
    "Manifold": "manifold",
    "Ranking": "ranking",
    "compact": "compact",
}
"""Which room defines a public name; the others are errors."""


def __getattr__(name: str) -> Any:
    """Import the room of a public name when the name is first used, so that ``import manifind`` itself costs little."""
    if name not in __all__:
        raise AttributeError(f"module 'manifind' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"manifind.{_ROOMS.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps the name of a function that shares it with its room: importing the room would replace the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _ROOMS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
