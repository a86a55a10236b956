"""Grading: whether a verified image shows the very object of a query's box, or shares a part of it.

A transform with enough inliers says that something of the query appears in the image. Packages of one brand have the
logo in common, and verify each other by it. What tells them apart is the other results: those of another product match
each other better than they match the query.

Three figures of each result make a first logit: its rank by inliers, how many of the results most similar to it match
it better than the query does, and how much of the query's box its inliers cover. The logits then spread over the graph
of matches among the results: results of one product agree with each other, so the mean of a result's partners says more
than its own figures. The coefficients stand in `GradingConfig`; ``benchmarks/grades.py`` fits them and reports how well
they do.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.boxes import clip_box
from manifind.geometry import PackedFeatures, VerificationConfig, verify_many
from manifind.geometry.transforms import inside_outline
from manifind.index.config import GradingConfig, SearchConfig
from manifind.index.search.image_features import load_or_locate_features
from manifind.index.search.query_expansion import best_overlapping_regions
from manifind.index.search.verification import Evidence, Verification
from manifind.index.storage.snapshot import Snapshot
from manifind.types import Box

Pair = tuple[int, int, Box]
"""Two images, and where the first shows the object."""
Counts = MutableMapping[Pair, int]
"""The inliers of pairs of results, computed once."""


class Figures(NamedTuple):
    """What is known of the results of a search, in one order."""

    own: npt.NDArray[np.float64]
    """(n, 3): log(1 + rank by inliers), log(1 + results that match it better), and the coverage of the box."""
    partners: tuple[tuple[int, ...], ...]
    """The results that match each one best."""


def grade_verifications(
    snapshot: Snapshot,
    verifications: Mapping[int, Verification],
    own: frozenset[int],
    counts: Counts,
    config: SearchConfig,
    may_go_on: Callable[[], bool] = lambda: True,
) -> dict[int, Verification]:
    """Return verifications in which results that share only a part of the object are no longer verified.

    Parameters
    ----------
    snapshot : Snapshot
    verifications : mapping
        Of the images that were verified, by their numbers, graded before or not.
    own : set of int
        The images that the query was taken from: they are not graded.
    counts : mapping
        The inliers of pairs of results; new pairs are added.
    config : SearchConfig
    may_go_on : callable
        Asked before each result is matched with others. Where it says no, nothing is graded.
    """
    ungraded = {image: one.ungraded or one for image, one in verifications.items()}
    evidence = {image: one.evidence for image, one in ungraded.items() if one.evidence is not None and image not in own}
    if not config.grading.enabled or snapshot.local is None or not any(ungraded[image].verified for image in evidence):
        return ungraded
    if not count_matches(snapshot, evidence, counts, config, may_go_on):
        return ungraded
    figures = measure(evidence, counts, config.grading)
    chances = probabilities(figures, config.grading)
    graded = dict(ungraded)
    for image, chance in zip(evidence, chances.tolist(), strict=True):
        one = ungraded[image]
        if one.verified and chance < config.grading.min_verified:
            graded[image] = _demote(one, shares_part=chance < config.grading.max_part)
    return graded


def _demote(one: Verification, *, shares_part: bool) -> Verification:
    """Return a verification that verifies nothing: a weak match, or one that says which part is shared."""
    assert one.evidence is not None  # noqa: S101 (graded by it)
    return replace(
        one,
        verified=False,
        outline=None,
        box=None,
        other_outlines=(),
        geometry=None,
        weak_match_box=None if shares_part else one.box,
        part=one.evidence.part,
        shares_part=shares_part,
        ungraded=one,
    )


# -- figures ----------------------------------------------------------------------------------------------------------


def count_matches(
    snapshot: Snapshot,
    evidence: Mapping[int, Evidence],
    counts: Counts,
    config: SearchConfig,
    may_go_on: Callable[[], bool] = lambda: True,
) -> bool:
    """Match the object's part of each result with the results most similar to it; return whether there was time."""
    limits = config.grading
    images = list(evidence)
    nearest = _most_similar(snapshot, evidence, limits.compared)
    features = load_or_locate_features(snapshot, [snapshot.catalogue[image] for image in images])
    matching = replace(config.matching, max_instances=1)
    for place, image in enumerate(images):
        box = evidence[image].box
        missing = [other for other in nearest[place] if (image, images[other], box) not in counts]
        if not missing:
            continue
        if not may_go_on():
            return False
        found = _match_part(features[place], evidence[image], [features[other] for other in missing], limits, matching)
        counts.update({(image, images[other], box): n for other, n in zip(missing, found, strict=True)})
    return True


def _match_part(
    image: object, evidence: Evidence, others: Sequence[object], limits: GradingConfig, matching: VerificationConfig
) -> list[int]:
    """Return how many keypoints of the object's part of an image agree on one transform, for each other image."""
    packed = [one for one in others if isinstance(one, PackedFeatures)]
    if not isinstance(image, PackedFeatures) or len(packed) < len(others):
        return [0] * len(others)
    part = image[np.flatnonzero(inside_outline(np.array(evidence.outline), image.keypoints))[: limits.max_keypoints]]
    x0, y0 = np.min(evidence.outline, axis=0).tolist()
    x1, y1 = np.max(evidence.outline, axis=0).tolist()
    if (
        len(part) < matching.min_inliers_box
        or min(x1, image.width) <= max(x0, 0)
        or min(y1, image.height) <= max(y0, 0)
    ):
        return [0] * len(others)
    box = clip_box((x0, y0, x1, y1), image.width, image.height)
    return [verdict.consensus for verdict in verify_many(part.features(), packed, box, config=matching)]


def _most_similar(snapshot: Snapshot, evidence: Mapping[int, Evidence], limit: int) -> list[list[int]]:
    """Return the places of the results most similar to each one, by the region that fits the object's box best."""
    if not evidence:
        return []
    rows = [(best_overlapping_regions(snapshot, image, one.box) or [0])[0] for image, one in evidence.items()]
    vectors = np.asarray(snapshot.manifold.vectors_[rows], np.float32)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    order = np.argsort(-similarity, axis=1, kind="stable")[:, : min(limit, len(rows) - 1)]
    return [places.tolist() for places in order]


def measure(evidence: Mapping[int, Evidence], counts: Mapping[Pair, int], config: GradingConfig) -> Figures:
    """Return the figures of results."""
    images, n = list(evidence), len(evidence)
    inliers = np.array([one.inliers for one in evidence.values()], np.float64)
    matches = np.zeros((n, n))
    place_of = {image: place for place, image in enumerate(images)}
    for (image, other, box), count in counts.items():
        if image in place_of and other in place_of and evidence[image].box == box:
            matches[place_of[image], place_of[other]] = count
    rank = np.minimum((inliers > inliers[:, None]).sum(axis=1), config.max_rank)
    better = (matches > inliers[:, None]).sum(axis=1)
    coverage = np.array([one.coverage for one in evidence.values()], np.float64)
    mutual = np.maximum(matches, matches.T)
    best = np.argsort(-mutual, axis=1, kind="stable")[:, : config.partners]
    partners = tuple(tuple(j for j in row if mutual[i, j] > 0) for i, row in enumerate(best.tolist()))
    return Figures(np.stack([np.log1p(rank), np.log1p(better), coverage], axis=1), partners)


def spread(logits: npt.NDArray[np.float64], partners: Sequence[Sequence[int]]) -> npt.NDArray[np.float64]:
    """Return the mean of each result's partners; that of a result without partners is its own."""
    return np.array([logits[list(of)].mean() if of else own for own, of in zip(logits, partners, strict=True)])


def stacked_logits(figures: Figures, config: GradingConfig) -> npt.NDArray[np.float64]:
    """Return the logits of each result, of its partners, and of their partners, (n, 3)."""
    constant, *slopes = config.own_coefficients
    own = constant + figures.own @ np.array(slopes)
    first = spread(own, figures.partners)
    return np.stack([own, first, spread(first, figures.partners)], axis=1)


def probabilities(figures: Figures, config: GradingConfig) -> npt.NDArray[np.float64]:
    """Return how probably each result shows the very object."""
    constant, *slopes = config.spread_coefficients
    logits = constant + stacked_logits(figures, config) @ np.array(slopes)
    return np.asarray(1 / (1 + np.exp(-logits)))
