"""Confidence: whether anything in a ranking matches, and where the cutoff is.

Diffusion scores every image, so a ranking has no end of its own. Two measurements give it one
(``benchmarks/cutoff.py`` prints how well):

- **Does anything match?** One region of a query without a match often resembles one region of some image: two patches
  of sky do. An image of the object has several regions, each of which resembles another region of the query. So the
  resemblance of a query and an image is the mean similarity of the best pairs of regions that are each other's best,
  near-duplicate regions counted once (`resemblance`). It must exceed a part of the *null similarity*, which unrelated
  regions hardly exceed (`null_similarity`), a larger part in larger collections (`collection_size_factor`).
- **Down to where?** Scores fall steeply after the images of the object: results below half of the best are no matches.

Images that the query itself was taken from are left out of both: they match themselves. Where images are verified, the
cutoff rests on these instead (`manifind.index.search.results`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from manifind.index.config import CutoffConfig
from manifind.index.search.retrieval import Retrieval
from manifind.index.storage.snapshot import AnySnapshot, Snapshot, measure_null_similarity
from manifind.types import FloatArray

IMAGES_AT_ONCE = 64
"""Images whose regions are compared with a query in one product."""


@dataclass(frozen=True)
class Confidence:
    """What speaks for the results of a ranking."""

    similarity: float
    """The largest resemblance of the query to one of the best images, its own left out."""
    null_similarity: float
    """The resemblance that a query without a match hardly exceeds here."""
    cutoff: float
    """Lower scores are no matches; 0 where nothing matches."""


def measure_confidence(
    retrieval: Retrieval, own: Collection[int] = (), config: CutoffConfig | None = None
) -> Confidence | None:
    """Return the confidence of a ranking by regional diffusion; None for other methods.

    `own` are the images that the query was taken from.
    """
    if retrieval.method != "regional":
        return None
    config = config or CutoffConfig()
    snapshot, queries = retrieval.snapshot, retrieval.query.orientations
    images, scores = retrieval.ranking.images, retrieval.ranking.scores
    others = np.flatnonzero(~np.isin(images, list(own)) & (scores > 0))
    best: list[FloatArray] = [
        np.asarray(snapshot.manifold.vectors_[snapshot.regions_of(int(image))], np.float32)
        for image in images[others[: config.compared_images]]
    ]
    # Images and queries of one region (descriptors of the user's own) have no more pairs.
    pairs = min([config.pairs, len(queries[0]), *(len(regions) for regions in best)])
    similarity = max(
        (resemblance(query, regions, pairs, config.duplicate_similarity) for regions in best for query in queries),
        default=0.0,
    )
    null = null_similarity(snapshot, config)
    if pairs == config.pairs:
        null *= config.pair_null_ratio * collection_size_factor(snapshot.photos, config)
    cutoff = config.min_score_ratio * float(scores[others[0]]) if similarity > null else 0.0
    return Confidence(similarity, null, cutoff)


def collection_size_factor(images: int, config: CutoffConfig | None = None) -> float:
    """Return how much more a query without a match resembles the best of so many images than the best of Holidays.

    The resemblance that 97 of 100 such queries stay below grows by the same amount whenever a collection doubles.
    """
    config = config or CutoffConfig()
    factor = 1 + config.gain_per_doubling * float(np.log2(max(1, images) / config.reference_images))
    least, most = config.size_factor_bounds
    return min(max(factor, least), most)


def resemblance(query: FloatArray, image: FloatArray, pairs: int = 3, duplicate_similarity: float = 0.85) -> float:
    """Return the mean similarity of the best pairs of regions that are each other's best, (m, d) and (r, d) unit rows.

    A pair whose region is a near-duplicate of that of a better pair, in the query or in the image, does not count.
    Missing pairs count as zero: a query whose regions all resemble one region has a single pair.
    """
    similarity = query @ image.T
    of_column, of_row = similarity.argmax(axis=0), similarity.argmax(axis=1)
    columns = np.flatnonzero(of_row[of_column] == np.arange(len(image)))
    rows = of_column[columns]
    values = similarity[rows, columns]
    duplicates = np.maximum(query[rows] @ query[rows].T, image[columns] @ image[columns].T) >= duplicate_similarity
    counted: list[int] = []
    for pair in np.argsort(-values, kind="stable").tolist():
        if len(counted) < pairs and not duplicates[pair, counted].any():
            counted.append(pair)
    return float(values[counted].sum()) / pairs


def resemble_query_and_expansion(retrieval: Retrieval, images: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return which images resemble both the query as given and its expansion regions, where there are any.

    One region of the image must resemble a region of each by more than unrelated regions do. What resembles the query
    alone often shows the background of the query; what resembles a verified image alone, the background there.
    """
    snapshot, query = retrieval.snapshot, retrieval.query
    expansion = query.view_of < 0
    groups = [rows for rows in (~expansion, expansion) if rows.any()]
    best: list[float] = []
    for start in range(0, len(images), IMAGES_AT_ONCE):  # a product for each image would take several times as long
        rows = [snapshot.regions_of(int(image)) for image in images[start : start + IMAGES_AT_ONCE]]
        regions = np.concatenate([snapshot.manifold.vectors_[own] for own in rows]).astype(np.float32, copy=False)
        similarity = query.vectors @ regions.T
        both = np.min([similarity[group].max(axis=0) for group in groups], axis=0)
        ends = np.cumsum([own.stop - own.start for own in rows])
        best += [float(of_image.max()) for of_image in np.split(both, ends[:-1])]
    return np.array(best, np.float32) > np.float32(unrelated_similarity(snapshot))


def null_similarity(snapshot: AnySnapshot, config: CutoffConfig | None = None) -> float:
    """Return the similarity that unrelated regions hardly exceed, within the bounds of the configuration."""
    config = config or CutoffConfig()
    return min(
        max(config.null_factor * unrelated_similarity(snapshot), config.min_null_similarity),
        config.max_null_similarity,
    )


def unrelated_similarity(snapshot: AnySnapshot) -> float:
    """Return the similarity that one pair in 300 of regions of different images exceeds.

    The manifest has it; of an index whose manifest is older, it is measured once.
    """
    if snapshot.manifest.null_similarity is not None:
        return snapshot.manifest.null_similarity
    with snapshot.cache.lock:
        if snapshot.cache.null_similarity is None:
            manifold = cast(Snapshot, snapshot).manifold  # a published collection has it in its manifest
            snapshot.cache.null_similarity = measure_null_similarity(manifold.vectors_, manifold.layout_.place_of)
        return snapshot.cache.null_similarity
