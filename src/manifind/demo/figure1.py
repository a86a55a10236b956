"""Figure 1 of the paper: diffusion in the plane, where it can be seen.

The points of the plane stand for region descriptors. They have no unit norm, so nearness is Euclidean distance and
similarity a Gaussian of it; from the neighbour lists on, everything is as it is for images.

matplotlib is imported when a figure is drawn, not before: ``pip install 'manifind[plots]'``.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from manifind.demo.synthetic import Points, bananas
from manifind.diffusion import diffuse, seed
from manifind.errors import MissingExtraError
from manifind.graph import Neighbours, mutual_affinity, normalise
from manifind.kernels import dense_columns
from manifind.types import FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

K = 12
"""Neighbours of each point in the graph."""
QUERY_K = 10
"""Neighbours of a query: the green points."""
WIDTH = 0.1
"""Standard deviation of the Gaussian that makes a similarity of a distance."""
ALPHA = 0.99
JOINED = 80
"""Neighbours that join any other place of the plane to the graph: so many that the last hardly counts."""
STEP = 0.015
"""Distance between the places where the score is computed for the contour lines."""
ROOM = 0.45
"""How far the picture reaches beyond the points on every side."""


@dataclass(frozen=True)
class Diffused:
    """Points of the plane after diffusion from some queries."""

    points: Points
    queries: Points
    neighbours: IntArray
    """The points that the queries put on the graph, ascending: where y is positive."""
    degrees: FloatArray
    f: FloatArray

    def at(self, places: Points) -> npt.NDArray[np.float64]:
        """Return the score that any places (p, 2) of the plane would get, each joined to its nearest points.

        A place is not asked for mutuality, and one of the points counts itself among the nearest: it gets about its f.
        """
        y = similarity(np.linalg.norm(places[:, None] - self.queries, axis=-1)).sum(axis=1)
        joined = nearest_in_the_plane(places, self.points, JOINED)
        return scores_in_the_plane(joined, self.degrees, self.f, y)


def diffuse_in_the_plane(points: Points, queries: Points) -> Diffused:
    """Diffuse from `queries` (m, 2) on the graph of `points` (n, 2) until it converges."""
    neighbours = nearest_in_the_plane(points, points, K + 1)
    others = Neighbours(
        neighbours.ids[:, 1:], neighbours.similarities[:, 1:]
    )  # the nearest of a point is the point itself
    S, degrees = normalise(mutual_affinity(others, gamma=1))
    start = seed(nearest_in_the_plane(queries, points, QUERY_K), query_k=len(points), gamma=1)
    f = diffuse(S, dense_columns([start], len(points))[:, 0], alpha=ALPHA, max_iter=1000).scores
    return Diffused(points, queries, start.regions, degrees, f)


def similarity(distance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the affinity of points of the plane at a distance."""
    return np.exp(-((distance / WIDTH) ** 2) / 2)


def nearest_in_the_plane(places: Points, points: Points, k: int) -> Neighbours:
    """Return the `k` of `points` nearest to each of `places`: itself first, where the place is one of them."""
    distances, ids = KDTree(points).query(places, np.arange(1, min(k, len(points)) + 1))
    return Neighbours(ids.astype(np.int32), similarity(distances).astype(np.float32))


def scores_in_the_plane(
    neighbours: Neighbours,
    degrees: FloatArray,
    f: FloatArray,
    y: npt.NDArray[np.floating],
    *,
    alpha: float = ALPHA,
) -> npt.NDArray[np.float64]:
    """Return what eq. 3 gives to places x joined to a graph after diffusion: α Σᵢ a(x, xᵢ) fᵢ / √(d dᵢ) + (1 − α) y(x).

    d is the sum of the affinities a(x, xᵢ), dᵢ the degree of xᵢ. A point of the graph with its own edges gets its own
    score, for f is the fixed point. Far from the graph all affinities vanish, and the score with them.

    Parameters
    ----------
    neighbours : Neighbours
        Points (p, k) of the graph that each place is joined to, and the affinities.
    degrees, f : (n,)
        Of the graph and the diffusion on it.
    y : (p,)
        What the query puts on each place.
    alpha : float
        The one of the diffusion.
    """
    affinity = neighbours.similarities.astype(np.float64)
    share = np.divide(f, np.sqrt(degrees), out=np.zeros(len(f)), where=degrees > 0)
    total = affinity.sum(axis=1)
    root = np.sqrt(total, out=np.ones(len(total)), where=total > 0)
    return np.asarray(alpha * (affinity * share[neighbours.ids]).sum(axis=1) / root + (1 - alpha) * y)


# -- drawing ----------------------------------------------------------------------------------------------------------

BLUE, RED, GREEN = "#2a6fbb", "#d0202e", "#1b9e54"
LIGHT, DARK = ["#fff7e6", "#fdd692", "#f3a25f"], ["#dcb063", "#8a4b1c"]
"""From low to high scores: fills, and the lines between them."""


def figure1(path: str | os.PathLike[str] | None = None) -> "Figure":
    """Draw the paper's first figure, (a) for a single query and (b) for queries on two manifolds.

    Data points are blue, queries red, and their nearest neighbours green; contour lines join places of the plane that
    would get the same score.

    Parameters
    ----------
    path : path, optional
        Where to save it as well; the suffix says in which format.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise MissingExtraError("drawing a figure needs matplotlib; pip install 'manifind[plots]'") from missing

    data = bananas()
    figure = Figure(figsize=(10, 5.6), dpi=120, layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    _draw(panels[0], diffuse_in_the_plane(data.points, data.queries[:1]), "(a) single query")
    _draw(panels[1], diffuse_in_the_plane(data.points, data.queries[[0, 3]]), "(b) multiple queries")
    handles, labels = panels[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=12, handletextpad=0.2)
    if path is not None:
        figure.savefig(path)
    return figure


def _draw(panel: "Axes", diffused: Diffused, title: str) -> None:
    x, y, score = _grid(diffused)
    levels = score.max() * np.linspace(0.18, 0.97, 11) ** 3
    panel.contourf(x, y, score, levels=[*levels, score.max()], colors=_between(LIGHT, len(levels)), alpha=0.7)
    panel.contour(x, y, score, levels=levels, colors=_between(DARK, len(levels)), linewidths=0.9)

    near = np.isin(np.arange(len(diffused.points)), diffused.neighbours)
    for places, size, marker, colour, label in [
        (diffused.points[~near], 14, "o", BLUE, "data points"),
        (diffused.points[near], 36, "o", GREEN, "nearest neighbours of the query"),
        (diffused.queries, 170, "*", RED, "query points"),
    ]:
        panel.scatter(
            places[:, 0],
            places[:, 1],
            s=size,
            c=colour,
            marker=marker,
            edgecolors="white",
            linewidths=size**0.5 / 12,
            zorder=3,
            label=label,
        )
    panel.set(aspect="equal", xticks=[], yticks=[])
    panel.set_title(title, fontsize=13)
    for spine in panel.spines.values():
        spine.set_color("#bbbbbb")


def _between(colours: list[str], count: int) -> list[tuple[float, float, float, float]]:
    """Return `count` colours from the first of `colours` by way of the others to the last."""
    from matplotlib.colors import LinearSegmentedColormap

    return list(LinearSegmentedColormap.from_list("between", colours)(np.linspace(0, 1, count)))


def _grid(diffused: Diffused) -> tuple[npt.NDArray[np.float64], ...]:
    """Return the coordinates of a grid over the points and their surroundings, and the score at each crossing."""
    low, high = diffused.points.min(axis=0) - ROOM, diffused.points.max(axis=0) + ROOM
    x, y = (np.arange(start, end, STEP) for start, end in zip(low, high, strict=True))
    places = np.stack(np.meshgrid(x, y), axis=-1)
    return x, y, diffused.at(places.reshape(-1, 2)).reshape(places.shape[:2])
