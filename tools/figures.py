"""Draw the figures of docs/mechanism.md, by the functions that the page explains.

    python tools/figures.py [FOLDER]    # docs/figures by default

Needs ``manifind[plots]``.
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from matplotlib.collections import LineCollection
from scipy.sparse.linalg import cg

from manifind.demo.figure1 import BLUE, GREEN, RED, K, nearest_in_the_plane
from manifind.demo.synthetic import bananas, planted_objects
from manifind.diffusion import seed
from manifind.graph import Neighbours, exact_neighbours, mutual_affinity, normalise
from manifind.kernels import dense_columns, kernel

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
ALPHA = 0.99
STEPS = (1, 10, 100, 3000)


def plane() -> tuple[Any, Neighbours]:
    """Return points of the plane on curves, and the nearest others of each."""
    points = bananas().points
    found = nearest_in_the_plane(points, points, K + 1)
    return points, Neighbours(found.ids[:, 1:], found.similarities[:, 1:])


def walked(S: sp.csr_array, y: Any, steps: int) -> Any:
    """Return f after so many steps of eq. 3."""
    f = np.zeros_like(y)
    for _ in range(steps):
        f = ALPHA * (S @ f) + (1 - ALPHA) * y
    return f


def errors() -> tuple[list[float], list[float]]:
    """Return how far eq. 3 and conjugate gradient are from the solution of eq. 4 after each step."""
    photos = planted_objects(300, objects=5, views=30)
    S, _ = normalise(mutual_affinity(exact_neighbours(photos.vectors, 50), gamma=3))
    similarities = photos.queries[0] @ photos.vectors.T
    nearest = np.argsort(-similarities, axis=1, kind="stable")[:, :20].astype(np.int32)
    start = seed(Neighbours(nearest, np.take_along_axis(similarities, nearest, axis=1)), 20, 3.0)
    y = dense_columns([start], len(photos.vectors))[:, 0].astype(np.float64)
    truth = walked(S, y, 5000)
    by_iteration, f = [], np.zeros_like(y)
    for _ in range(110):
        f = ALPHA * (S @ f) + (1 - ALPHA) * y
        by_iteration.append(float(np.linalg.norm(f - truth) / np.linalg.norm(truth)))
    by_gradient = []
    for steps in range(1, 41):
        solved, _ = cg(sp.eye_array(len(y)) - ALPHA * S, (1 - ALPHA) * y, rtol=0.0, atol=0.0, maxiter=steps)
        by_gradient.append(float(np.linalg.norm(solved - truth) / np.linalg.norm(truth)))
    return by_iteration, by_gradient


def draw_graph(folder: Path) -> None:
    """Draw nearest neighbours, and those that are mutual: eq. 5 and 6."""
    points, others = plane()
    mutual = mutual_affinity(others, gamma=1).tocoo()
    listed = np.repeat(np.arange(len(points)), others.ids.shape[1]), others.ids.ravel()
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for panel, (rows, columns), title in (
        (panels[0], listed, f"the {K} nearest others of each point"),
        (panels[1], (mutual.row, mutual.col), "edges: those that are mutual"),
    ):
        lines = np.stack([points[rows], points[columns]], axis=1)
        panel.add_collection(LineCollection(list(lines), colors=BLUE, linewidths=0.4, alpha=0.5))
        panel.plot(*points.T, ".", color="black", markersize=2)
        panel.set_title(title, fontsize=10)
        panel.set_aspect("equal")
        panel.axis("off")
    _save(figure, folder / "graph.png")


def draw_walk(folder: Path) -> None:
    """Draw the score after some steps of eq. 3, from one point."""
    points, others = plane()
    S, _ = normalise(mutual_affinity(others, gamma=1))
    start = len(points) // 10  # somewhere on the first curve
    y = np.zeros(len(points))
    y[start] = 1
    figure, panels = plt.subplots(1, len(STEPS), figsize=(11, 2.8), layout="constrained")
    for panel, steps in zip(panels, STEPS, strict=True):
        f = walked(S, y, steps)
        shown = np.log10(np.maximum(f / f.max(), 1e-6))
        panel.scatter(*points.T, c=shown, s=9, cmap="viridis", vmin=-6, vmax=0)
        panel.plot(*points[start], "*", color=RED, markersize=11)
        panel.set_title("converged" if steps == STEPS[-1] else f"after {steps} step{'s' * (steps > 1)}", fontsize=10)
        panel.set_aspect("equal")
        panel.axis("off")
    _save(figure, folder / "walk.png")


def draw_errors(folder: Path) -> None:
    """Draw how fast eq. 3 and conjugate gradient come near eq. 4."""
    by_iteration, by_gradient = errors()
    figure, panel = plt.subplots(figsize=(6, 3.2), layout="constrained")
    panel.semilogy(range(1, len(by_iteration) + 1), by_iteration, color=BLUE, label="the iteration of eq. 3")
    panel.semilogy(range(1, len(by_gradient) + 1), by_gradient, color=GREEN, label="conjugate gradient on eq. 4")
    panel.axvline(20, color="grey", linewidth=0.8, linestyle=":")
    panel.set_xlabel("products with S")
    panel.set_ylabel("‖f − f*‖ / ‖f*‖")
    panel.legend(frameon=False)
    _save(figure, folder / "convergence.png")


def draw_kernel(folder: Path) -> None:
    """Draw what a similarity is worth: eq. 1 with the exponent of Sec. 5.1."""
    figure, panel = plt.subplots(figsize=(4.2, 2.8), layout="constrained")
    similarity = np.linspace(-0.3, 1, 200, dtype=np.float32)
    for gamma, colour in ((1.0, BLUE), (3.0, GREEN), (5.0, RED)):
        panel.plot(similarity, kernel(similarity, gamma), color=colour, label=f"γ = {gamma:g}")
    panel.set_xlabel("similarity x · z")
    panel.set_ylabel("affinity")
    panel.legend(frameon=False)
    _save(figure, folder / "kernel.png")


def _save(figure: Any, file: Path) -> None:
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main(folder: Path) -> None:
    """Draw all of them."""
    mpl.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    for draw in (draw_kernel, draw_graph, draw_walk, draw_errors):
        draw(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
