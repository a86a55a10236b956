"""How good a ranking is: protocols, average precision, methods compared, tables, figures, a report."""

from manifind.evaluate.measures import (
    DEFINITIONS,
    average_precision,
    mean_average_precision,
    precision_at,
    precision_of_positives,
)
from manifind.evaluate.protocol import Protocol, QueryPhoto, Task
from manifind.evaluate.truth import read_truth

__all__ = [
    "DEFINITIONS",
    "Protocol",
    "QueryPhoto",
    "Task",
    "average_precision",
    "mean_average_precision",
    "precision_at",
    "precision_of_positives",
    "read_truth",
]
