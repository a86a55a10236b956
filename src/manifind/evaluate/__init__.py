"""How good a ranking is."""

from manifind.evaluate.average_precision import DEFINITIONS, average_precision, mean_average_precision

__all__ = ["DEFINITIONS", "average_precision", "mean_average_precision"]
