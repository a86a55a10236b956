"""The fitted state of a collection: built from its descriptors, or from the state of the collection as it was."""

import numpy as np
import numpy.typing as npt

from manifind.checks import unit_vectors
from manifind.errors import InvalidInput
from manifind.graph import GIVEN, GRAPHS, given_neighbours, measured, settled, update_neighbours
from manifind.kernels import Rows, backend
from manifind.layout import Change, Layout, aggregate
from manifind.manifold.fitted import Fitted
from manifind.manifold.parameters import Parameters
from manifind.ranking import POOLINGS, pooling_weights
from manifind.types import FloatArray, IntArray, Progress, Vectors

WEIGHING = 2**26
"""The most bytes of scratch that pooling weights take."""


def built(
    parameters: Parameters,
    vectors: FloatArray,
    layout: Layout,
    *,
    neighbours: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    global_vectors: npt.ArrayLike | None = None,
    rows: Rows | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Find neighbours, the graph and the pooling weights of a collection: see `Manifold.fit`."""
    if global_vectors is not None:
        globals_ = _checked_globals(global_vectors, layout)
    else:
        globals_ = vectors if len(layout.images) == len(vectors) else aggregate(vectors, layout)
    device, k, memory = backend(parameters.device), parameters.k, parameters.memory
    rows = device.rows(vectors) if rows is None else rows
    if neighbours is not None:
        method, lists = GIVEN, given_neighbours(neighbours, vectors, k)
    else:
        method = settled(parameters.graph, rows, k)
        lists = GRAPHS[method](rows, k, reserve=parameters.reserve, memory=memory, progress=progress)
    recall = measured(method, lists, rows, k, memory=memory)
    weights = pooling_weights(parameters.pooling, vectors, layout, parameters.lam, memory=min(WEIGHING, memory))
    return Fitted.of(parameters, device, rows, vectors, layout, lists, recall, weights, globals_)


def updated(
    before: Fitted,
    parameters: Parameters,
    vectors: Vectors,
    layout: Layout,
    origin: IntArray,
    *,
    global_vectors: npt.ArrayLike | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Repair the lists of a collection that changed, and take over what did not: see `Manifold.update`."""
    rows = before.backend.rows(vectors)
    lists = update_neighbours(
        before.lists,
        rows,
        origin,
        parameters.k,
        reserve=parameters.reserve,
        memory=parameters.memory,
        progress=progress,
    )
    change = before.layout.change(layout, origin)
    new = rows.take(change.regions)
    weights = _updated_weights(before, parameters, vectors, layout, origin, change, new)
    if global_vectors is not None:
        globals_ = _checked_globals(global_vectors, layout)
    elif before.global_vectors.shape[1] != before.vectors.shape[1]:
        raise InvalidInput("global_vectors is missing: the collection was fitted with some of its own; give them too.")
    else:
        globals_ = np.empty((len(layout.images), vectors.shape[1]), np.float32)
        globals_[change.kept] = before.global_vectors[change.before]
        globals_[change.new] = aggregate(new, change.layout)
    recall = before.built.after_update()
    return Fitted.of(parameters, before.backend, rows, vectors, layout, lists, recall, weights, globals_)


def _checked_globals(global_vectors: npt.ArrayLike, layout: Layout) -> FloatArray:
    checked = unit_vectors(global_vectors, "global_vectors")
    if len(checked) != len(layout.images):
        raise InvalidInput(
            f"global_vectors has {len(checked)} rows for {len(layout.images)} images; give one for each image."
        )
    return checked


def _updated_weights(
    before: Fitted,
    parameters: Parameters,
    vectors: Vectors,
    layout: Layout,
    origin: IntArray,
    change: Change,
    new: FloatArray,
) -> FloatArray:
    """Return the pooling weights of a changed collection; those of images that stayed are as they were."""
    pooled = len(layout.images) < len(vectors), len(before.layout.images) < len(before.vectors)
    if pooled != (True, True):  # with one region an image there is nothing to pool
        return pooling_weights(parameters.pooling, vectors, layout, parameters.lam)
    weights = np.ones(len(origin), np.float32)
    weights[origin >= 0] = before.weights[origin[origin >= 0]]
    if len(new):
        weights[change.regions] = POOLINGS[parameters.pooling](new, change.layout, parameters.lam)
    return weights
