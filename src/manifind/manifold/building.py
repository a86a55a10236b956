"""The fitted state of a collection: built from its descriptors, or from the state of the collection as it was."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from manifind.checks import unit_vectors
from manifind.errors import InvalidInputError
from manifind.graph import (
    GIVEN,
    GRAPHS,
    LocalKnnBuilder,
    estimate_recall,
    given_neighbours,
    resolve_method,
    update_neighbours,
)
from manifind.groups import Change, Layout, aggregate
from manifind.kernels import KnnGraphBuilder, backend
from manifind.manifold.fitted import Fitted, Parameters
from manifind.ranking import POOLINGS, pooling_weights
from manifind.types import FloatArray, IntArray, Progress, Vectors

MAX_POOLING_BYTES = 2**26
"""The most bytes of scratch that pooling weights take."""
IMAGES_AT_A_TIME = 2**10
"""New images whose weights and global descriptors are made at a time."""


def fit_state(
    parameters: Parameters,
    vectors: FloatArray,
    layout: Layout,
    *,
    neighbours: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    global_vectors: npt.ArrayLike | None = None,
    builder: KnnGraphBuilder | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Find neighbours, the graph and the pooling weights of a collection: see `Manifold.fit`."""
    if global_vectors is not None:
        globals_ = _checked_globals(global_vectors, layout)
    else:
        globals_ = vectors if len(layout.images) == len(vectors) else aggregate(vectors, layout)
    device, k, memory = backend(parameters.device), parameters.k, parameters.memory
    builder = LocalKnnBuilder(device.vector_set(vectors), device) if builder is None else builder
    if neighbours is not None:
        method, lists = GIVEN, given_neighbours(neighbours, vectors, k)
    else:
        method = resolve_method(parameters.knn, builder, k)
        lists = GRAPHS[method](builder, k, reserve=parameters.reserve, memory=memory, progress=progress)
    recall = estimate_recall(method, lists, builder.vectors, k, memory=memory)
    weights = pooling_weights(
        parameters.pooling, vectors, layout, parameters.gmp_lambda, memory=min(MAX_POOLING_BYTES, memory)
    )
    return Fitted.of(parameters, device, builder, vectors, layout, lists, recall, weights, globals_)


def update_state(
    before: Fitted,
    parameters: Parameters,
    vectors: Vectors,
    layout: Layout,
    origin: IntArray,
    *,
    global_vectors: npt.ArrayLike | None = None,
    builder: KnnGraphBuilder | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Repair the lists of a collection that changed, and take over what did not: see `Manifold.update`."""
    device = before.backend
    builder = LocalKnnBuilder(device.vector_set(vectors), device) if builder is None else builder
    lists = update_neighbours(
        before.lists,
        builder,
        origin,
        parameters.k,
        reserve=parameters.reserve,
        memory=parameters.memory,
        progress=progress,
    )
    change = before.layout.change(layout, origin)
    weights = _updated_weights(before, parameters, vectors, layout, origin, change)
    if global_vectors is not None:
        globals_ = _checked_globals(global_vectors, layout)
    elif before.global_vectors.shape[1] != before.vectors.shape[1]:
        raise InvalidInputError(
            "global_vectors is missing: the collection was fitted with some of its own; give them too.",
            code="missing-argument",
        )
    else:
        globals_ = np.empty((len(layout.images), vectors.shape[1]), np.float32)
        globals_[change.kept] = before.global_vectors[change.before]
        for images, regions, part in _new_image_blocks(change):
            globals_[change.new[images]] = aggregate(builder.vectors.gather(regions), part)
    recall = before.knn_report.after_update()
    return Fitted.of(parameters, device, builder, vectors, layout, lists, recall, weights, globals_)


def _checked_globals(global_vectors: npt.ArrayLike, layout: Layout) -> FloatArray:
    checked = unit_vectors(global_vectors, "global_vectors")
    if len(checked) != len(layout.images):
        raise InvalidInputError(
            f"global_vectors has {len(checked)} rows for {len(layout.images)} images; give one for each image.",
            code="wrong-length",
        )
    return checked


def _updated_weights(
    before: Fitted,
    parameters: Parameters,
    vectors: Vectors,
    layout: Layout,
    origin: IntArray,
    change: Change,
) -> FloatArray:
    """Return the pooling weights of a changed collection; those of images that stayed are as they were."""
    pooled = len(layout.images) < len(vectors), len(before.layout.images) < len(before.vectors)
    if pooled != (True, True):  # with one region an image there is nothing to pool
        return pooling_weights(parameters.pooling, vectors, layout, parameters.gmp_lambda)
    weights = np.ones(len(origin), np.float32)
    weights[origin >= 0] = before.weights[origin[origin >= 0]]
    for _, regions, part in _new_image_blocks(change):
        new = vectors[regions].astype(np.float32, copy=False)
        weights[regions] = POOLINGS[parameters.pooling](new, part, parameters.gmp_lambda)
    return weights


def _new_image_blocks(change: Change) -> Iterator[tuple[slice, IntArray, Layout]]:
    """Yield the new images of a change in parts: which, their regions, and the layout of these."""
    for first in range(0, len(change.layout.images), IMAGES_AT_A_TIME):
        images = slice(first, first + IMAGES_AT_A_TIME)
        starts = change.layout.starts[first : first + IMAGES_AT_A_TIME + 1]
        yield images, change.regions[starts[0] : starts[-1]], Layout(change.layout.images[images], starts - starts[0])
