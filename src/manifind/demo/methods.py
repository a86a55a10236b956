"""Four ways to search the scenes of the demo, and how each did by the truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from manifind.baselines import NearestImages, RegionMatch
from manifind.boxes import covered_fraction
from manifind.demo.scenes import Query, Scene, Scenes
from manifind.evaluation import mean_average_precision
from manifind.groups import aggregate_one
from manifind.index import Chain, Index
from manifind.manifold import Manifold
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray

ALPHA = 0.8
REGIONAL: dict[str, Any] = {"k": 200, "query_k": 50, "alpha": ALPHA}
GLOBAL: dict[str, Any] = {"k": 50, "query_k": 50, "alpha": ALPHA}
SIZES = ((2, 5), (5, 10), (10, 20), (20, 40))
"""Sizes of an object, in percent of the photo's area, that the table tells apart."""
DEFINITION = "trapezoid"
PLAIN, MATCH, DIFFUSION, REGIONS = "plain similarity", "R-match", "global diffusion", "regional diffusion"
EXAMPLES = 3
"""Photos whose chains the page shows."""


@dataclass(frozen=True)
class Line:
    """How one method did; percentages and seconds."""

    method: str
    mAP: float  # noqa: N815 (the field's word)
    by_size: dict[str, float]
    """mAP of the photos that show the object at a size; those that show it at another are ignored."""
    query_seconds: float


@dataclass(frozen=True)
class Example:
    """A photo that plain similarity loses and regional diffusion finds."""

    query: Query
    scene: Scene
    photos_of_it: int
    plain_rank: int
    regional_rank: int
    chain: Chain


class Ranked(NamedTuple):
    """All photos, for each query, by one method."""

    method: str
    rankings: list[Ranking]
    query_seconds: float


def rankings(index: Index, queries: Sequence[FloatArray]) -> list[Ranked]:
    """Rank all photos for the regions (m, d) of each query, by each method from the simplest to the paper's."""
    manifold = index.manifold
    image_of = manifold.layout_.image_of
    whole = {**GLOBAL, "k": min(GLOBAL["k"], len(index) - 1)}
    methods: list[tuple[str, NearestImages | RegionMatch | Manifold, Sequence[FloatArray]]] = [
        (PLAIN, NearestImages().fit(manifold.vectors_, image_of), queries),
        (MATCH, RegionMatch().fit(manifold.vectors_, image_of), queries),
        (DIFFUSION, Manifold(**whole).fit(manifold.global_vectors_), [aggregate_one(query) for query in queries]),
        (REGIONS, manifold, queries),
    ]
    ranked = []
    for name, method, asked in methods:
        start = perf_counter()
        each = [method.search(query) for query in asked]
        ranked.append(Ranked(name, each, (perf_counter() - start) / len(asked)))
    return ranked


def measured(index: Index, made: Scenes, ranked: Ranked) -> Line:
    """Hold the rankings of a method against the truth."""
    every = {query.shows: _numbers(index, showing(made.truth, query.shows)) for query in made.queries}
    wanted = [every[query.shows] for query in made.queries]
    by_size = {}
    for size, scenes in scenes_by_size(made.truth).items():
        of_size = [_numbers(index, showing(scenes, query.shows)) for query in made.queries]
        others = [sorted(set(all_) - set(some)) for all_, some in zip(wanted, of_size, strict=True)]
        if any(of_size):
            by_size[size] = mean_average_precision(ranked.rankings, of_size, others, definition=DEFINITION)
    return Line(
        ranked.method,
        round(100 * mean_average_precision(ranked.rankings, wanted, definition=DEFINITION), 2),
        {size: round(100 * mAP, 2) for size, mAP in by_size.items()},
        round(ranked.query_seconds, 5),
    )


def telling(index: Index, made: Scenes, found: Sequence[Ranked]) -> list[Example]:
    """Choose photos of different objects that plain similarity loses the most and regional diffusion finds.

    Lost is a photo ranked behind as many photos as show the object, and found is one ranked before. Its chain leads
    through other photos, and the object is in all regions on the way.
    """
    plain, regional = (next(one.rankings for one in found if one.method == name) for name in (PLAIN, REGIONS))
    candidates = []
    for number, query in enumerate(made.queries):
        of_it = showing(made.truth, query.shows)
        before, after = _ranks(plain[number]), _ranks(regional[number])
        for scene, image in zip(of_it, _numbers(index, of_it), strict=True):
            if after[image] <= len(of_it) < before[image]:
                candidates.append((after[image] - before[image], number, scene, len(of_it), before[image]))
    chosen: list[Example] = []
    for gain, number, scene, count, rank in sorted(candidates, key=lambda one: (one[0], one[1], one[2].file)):
        query = made.queries[number]
        if len(chosen) == EXAMPLES:
            break
        if any(one.query.shows == query.shows for one in chosen):
            continue
        (image,) = _numbers(index, [scene])
        hit = index.search(made.queries_folder / query.file, query.box, top=None).hit_of(image)
        if hit is None:
            continue
        why = index.explain(hit)
        boxes = {one.file: one.box for one in showing(made.truth, query.shows)}
        if len(why.keys) > 1 and all(_meets(link.target.box, boxes.get(link.target.key or "")) for link in why.links):
            chosen.append(Example(query, scene, count, rank, rank + gain, why))
    return chosen


def showing(scenes: Sequence[Scene], name: str) -> list[Scene]:
    """Return the scenes that show an object."""
    return [scene for scene in scenes if scene.shows == name]


def scenes_by_size(scenes: Sequence[Scene]) -> dict[str, list[Scene]]:
    """Return the scenes that show an object by its size; those at the ends of the scale belong to it."""
    edges = [least / 100 for least, _ in SIZES[1:]]
    kinds: dict[str, list[Scene]] = {f"{least}-{most}": [] for least, most in SIZES}
    names = list(kinds)
    for scene in scenes:
        if scene.shows is not None:
            kinds[names[int(np.digitize(scene.size, edges))]].append(scene)
    return kinds


def _meets(region: Box, box: Box | None) -> bool:
    """Say whether a region has half of the object in a box, or the object half of it."""
    return box is not None and bool(covered_fraction(region, box) >= 0.5)


def _numbers(index: Index, scenes: Sequence[Scene]) -> list[int]:
    records = [index.catalogue.of_key(scene.file) for scene in scenes]
    return [record.number for record in records if record is not None]


def _ranks(ranking: Ranking) -> dict[int, int]:
    return {image: rank for rank, image in enumerate(ranking.images.tolist(), start=1)}
