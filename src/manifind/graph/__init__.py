"""Vectors → neighbours → mutual affinity A → S: the off-line half of diffusion, on plain arrays.

>>> neighbours = exact_neighbours(vectors, k=100)
>>> A = mutual_affinity(neighbours, gamma=3.0)
>>> S, degrees = normalise(A)  # both at once: normalised_affinity(neighbours, gamma=3.0)
"""

from manifind.graph.affinity import mutual_affinity, normalised_affinity
from manifind.graph.knn_method import (
    AUTO,
    GIVEN,
    UNKNOWN,
    KnnReport,
    choose_knn_method,
    estimate_recall,
    expected_seconds,
    resolve_method,
)
from manifind.graph.neighbours import (
    GRAPHS,
    LocalKnnBuilder,
    exact_neighbours,
    given_neighbours,
    given_origin,
    nn_descent_neighbours,
    update_neighbours,
)
from manifind.kernels import NO_NEIGHBOUR, Neighbours, kernel
from manifind.kernels.cpu.affinity import normalise

__all__ = [
    "AUTO",
    "GIVEN",
    "GRAPHS",
    "NO_NEIGHBOUR",
    "UNKNOWN",
    "KnnReport",
    "LocalKnnBuilder",
    "Neighbours",
    "choose_knn_method",
    "estimate_recall",
    "exact_neighbours",
    "expected_seconds",
    "given_neighbours",
    "given_origin",
    "kernel",
    "mutual_affinity",
    "nn_descent_neighbours",
    "normalise",
    "normalised_affinity",
    "resolve_method",
    "update_neighbours",
]
