"""How good a ranking is: protocols, average precision, methods compared, tables, figures, a report."""

from manifind.evaluation.dataset import EvaluationSet
from manifind.evaluation.formats import read_truth
from manifind.evaluation.measures import (
    DEFINITIONS,
    average_precision,
    mean_average_precision,
    precision_at,
    precision_of_positives,
)
from manifind.evaluation.protocol import Protocol, QueryPhoto, Task
from manifind.evaluation.runner import EvaluationResult, evaluate

__all__ = [
    "DEFINITIONS",
    "EvaluationResult",
    "EvaluationSet",
    "Protocol",
    "QueryPhoto",
    "Task",
    "average_precision",
    "evaluate",
    "mean_average_precision",
    "precision_at",
    "precision_of_positives",
    "read_truth",
]
