"""Extraction options of tests, whatever an index does by default."""

from typing import Any

PLAINLY: dict[str, Any] = {"backbone": "mobilenet_v2", "whiten": "shipped", "scales": (1.0,)}
"""Seen once, in single precision, by the whitening that comes with the network."""

QUICKLY = ("--whiten", "shipped", "--scales", 1, "--long-side", 128)
"""The words of a command for which it does not matter how good the descriptors are."""
