"""Vectors → neighbours → mutual affinity A → S: the off-line half of diffusion, on plain arrays.

>>> neighbours = exact_neighbours(vectors, k=100)
>>> A = mutual_affinity(neighbours, gamma=3.0)
>>> S, degrees = normalise(A)  # both at once: normalised_affinity(neighbours, gamma=3.0)
"""

from manifind.graph.affinity import mutual_affinity, normalised_affinity
from manifind.graph.choosing import AUTO, GIVEN, UNKNOWN, Built, choose, expected_seconds, measured, settled
from manifind.graph.neighbours import (
    GRAPHS,
    NOBODY,
    Neighbours,
    exact_neighbours,
    given_neighbours,
    nn_descent_neighbours,
)
from manifind.graph.update import given_origin, update_neighbours
from manifind.kernels import kernel
from manifind.kernels.cpu.affinity import normalise

__all__ = [
    "AUTO",
    "GIVEN",
    "GRAPHS",
    "NOBODY",
    "UNKNOWN",
    "Built",
    "Neighbours",
    "choose",
    "exact_neighbours",
    "expected_seconds",
    "given_neighbours",
    "given_origin",
    "kernel",
    "measured",
    "mutual_affinity",
    "nn_descent_neighbours",
    "normalise",
    "normalised_affinity",
    "settled",
    "update_neighbours",
]
