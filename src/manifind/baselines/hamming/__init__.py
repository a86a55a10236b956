"""HQE, Hamming query expansion: search with local descriptors, on photos rather than on region vectors."""

from manifind.baselines.hamming.expansion import HammingQueryExpansion

__all__ = ["HammingQueryExpansion"]
