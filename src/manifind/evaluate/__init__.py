"""How good a ranking is: protocols, average precision, methods compared, tables, figures, a report."""

from manifind.evaluate.average_precision import (
    DEFINITIONS,
    average_precision,
    mean_average_precision,
    precision_at,
    precision_of_positives,
)
from manifind.evaluate.protocol import Protocol, Query, Task
from manifind.evaluate.truth import read_truth

__all__ = [
    "DEFINITIONS",
    "Protocol",
    "Query",
    "Task",
    "average_precision",
    "mean_average_precision",
    "precision_at",
    "precision_of_positives",
    "read_truth",
]
