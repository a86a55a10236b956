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

from manifind.index.config import CutoffConfig
from manifind.index.search.retrieval import Retrieval
from manifind.index.storage.snapshot import AnySnapshot, Snapshot, measure_null_similarity
from manifind.types import FloatArray


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


def resembles_query_and_expansion(retrieval: Retrieval, image: int) -> bool:
    """Return whether an image resembles both the query as given and its expansion regions, where there are any.

    One region of the image must resemble a region of each by more than unrelated regions do. What resembles the query
    alone often shows the background of the query; what resembles a verified image alone, the background there.
    """
    snapshot, expansion = retrieval.snapshot, retrieval.query.view_of < 0
    regions = np.asarray(snapshot.manifold.vectors_[snapshot.regions_of(image)], np.float32)
    groups = [retrieval.query.vectors[rows] for rows in (~expansion, expansion) if rows.any()]
    both = np.min([(vectors @ regions.T).max(axis=0) for vectors in groups], axis=0)
    return bool(both.max() > unrelated_similarity(snapshot))


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
