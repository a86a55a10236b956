"""How tests of an index's mechanics describe photos, whatever an index does by default."""

from typing import Any

PLAINLY: dict[str, Any] = {"backbone": "mobilenet_v2", "whiten": "shipped", "zooms": (1.0,)}
"""Seen once, in single precision, by the whitening that comes with the network."""
