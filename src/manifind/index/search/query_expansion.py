"""Query expansion by verified images: the regions that show the object join the query, which is retrieved once more.

A query knows one view of its object. A verified image shows another, and its outline says where: the regions that
overlap most with it join the query's regions (`manifind.diffusion` seeds them like the query's own). All verified
images expand the query: those with few inliers are the views that the query could not reach by itself.
"""

from collections.abc import Mapping

import numpy as np

from manifind.boxes import iou
from manifind.index.config import ExpansionConfig
from manifind.index.search.query import QueryRegions, QueryView
from manifind.index.search.retrieval import Retrieval
from manifind.index.search.verification import Verification
from manifind.index.storage.snapshot import Snapshot
from manifind.types import Box


def expand_query(
    retrieval: Retrieval, verifications: Mapping[int, Verification], config: ExpansionConfig | None = None
) -> QueryRegions | None:
    """Return the query with the regions of verified images; None where there are none, or the method cannot use them.

    The query's own image may expand it too: the result is the same whether the index knows that it has it or not.
    """
    regions = expansion_regions(retrieval.snapshot, verifications, config) if retrieval.method == "regional" else None
    return None if regions is None else retrieval.query.with_expansion(regions)


def expansion_regions(
    snapshot: Snapshot, verifications: Mapping[int, Verification], config: ExpansionConfig | None = None
) -> QueryView | None:
    """Return the regions of verified images that show the object; None where there are none."""
    limit = (config or ExpansionConfig()).regions_per_image
    regions = [
        region
        for image, verification in verifications.items()
        if verification.box is not None
        for region in best_overlapping_regions(snapshot, image, verification.box, limit)
    ]
    if not regions:
        return None
    rows = np.array(regions, np.int32)
    vectors, boxes = (np.asarray(of_all[rows], np.float32) for of_all in (snapshot.manifold.vectors_, snapshot.boxes))
    return QueryView(vectors, boxes, rows)


def best_overlapping_regions(snapshot: Snapshot, image: int, box: Box, limit: int = 1) -> list[int]:
    """Return the regions of an image that overlap most with a box, by intersection over union."""
    rows = snapshot.regions_of(image)
    overlap = iou(np.asarray(snapshot.boxes[rows], np.float32), box)
    best = np.argsort(-overlap, kind="stable")[:limit]
    return [rows.start + int(region) for region in best if overlap[region] > 0]
