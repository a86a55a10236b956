"""Each baseline as its publication tells it: float64, lists, sets and loops, an image at a time.

Nothing here is shared with the package. `X` are all regions, `image_of` their images, `Q` the regions of one query;
each function returns the score of every image by its number.
"""

from collections.abc import Callable, Sequence
from math import exp

import numpy as np
import numpy.typing as npt

from tests import literal

Array = npt.NDArray[np.float64]
Scores = dict[int, float]


def unit(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x))


def whole(regions: Array) -> Array:
    total = np.zeros(regions.shape[1])
    for region in regions:
        total += region
    return unit(total)


def regions_of(X: Array, image_of: Sequence[int]) -> dict[int, Array]:
    return {image: X[[i for i, own in enumerate(image_of) if own == image]] for image in sorted(set(image_of))}


def wholes(X: Array, image_of: Sequence[int]) -> dict[int, Array]:
    return {image: whole(regions) for image, regions in regions_of(X, image_of).items()}


def order(q: Array, images: dict[int, Array]) -> list[int]:
    """All images, the most similar to q first."""
    return sorted(images, key=lambda image: -float(images[image] @ q))


def plain(X: Array, image_of: Sequence[int], Q: Array) -> Scores:
    return {image: float(x @ whole(Q)) for image, x in wholes(X, image_of).items()}


def average_expansion(X: Array, image_of: Sequence[int], Q: Array, *, neighbours: int) -> Scores:
    images, q = wholes(X, image_of), whole(Q)
    total = q.copy()
    for image in order(q, images)[:neighbours]:
        total += images[image]
    return {image: float(x @ unit(total)) for image, x in images.items()}


def alpha_expansion(X: Array, image_of: Sequence[int], Q: Array, *, neighbours: int, alpha: float) -> Scores:
    images, q = wholes(X, image_of), whole(Q)
    total = q.copy()
    for image in order(q, images)[:neighbours]:
        similarity = float(images[image] @ q)
        if similarity > 0:
            total += similarity**alpha * images[image]
    return {image: float(x @ unit(total)) for image, x in images.items()}


def scsm(X: Array, image_of: Sequence[int], Q: Array, *, neighbours: int) -> Scores:
    images, q = wholes(X, image_of), whole(Q)
    lists = [order(q, images)]
    lists += [order(images[image], images) for image in lists[0][:neighbours]]
    scores = dict.fromkeys(images, 0.0)
    for i, ranked in enumerate(lists):
        for rank, image in enumerate(ranked, start=1):
            scores[image] += 1 / (i + 1) / rank
    return scores


def augmentation(X: Array, image_of: Sequence[int], Q: Array, *, neighbours: int) -> Scores:
    images, q = wholes(X, image_of), whole(Q)
    scores = {}
    for image, x in images.items():
        others = {other: z for other, z in images.items() if other != image}
        total = x.copy()
        for r, other in enumerate(order(x, others)[:neighbours], start=1):
            total += (neighbours - r) / neighbours * images[other]
        scores[image] = float(unit(total) @ q)
    return scores


QUERY = -1
"""The query's number where it stands among the images."""


def lists_with_query(images: dict[int, Array], q: Array) -> dict[int, list[int]]:
    """The query's list of images, and each image's list of all other images and, where it belongs, the query."""
    lists = {QUERY: order(q, images)}
    for image, x in images.items():
        lists[image] = order(x, {other: z for other, z in {**images, QUERY: q}.items() if other != image})
    return lists


def lists_without_query(images: dict[int, Array]) -> dict[int, list[int]]:
    return {image: order(x, {o: z for o, z in images.items() if o != image}) for image, x in images.items()}


def reciprocal(p: int, k: int, lists: dict[int, list[int]]) -> set[int]:
    return {g for g in lists[p][:k] if p in lists[g][:k]}


def hello_neighbor(X: Array, image_of: Sequence[int], Q: Array, *, neighbours: int) -> Scores:
    images, q = wholes(X, image_of), whole(Q)
    of_query = reciprocal(QUERY, neighbours, lists_with_query(images, q))
    lists = lists_without_query(images)
    close = set(of_query)
    for member in of_query:
        own = reciprocal(member, neighbours, lists) | {member}
        if len(own & of_query) >= len(own) / 2:
            close |= own
    scores = {}
    for image, x in images.items():
        similarities = [float(x @ q)] + [float(x @ images[member]) for member in close]
        scores[image] = 2 + sum(similarities) / len(similarities) if image in close else max(similarities)
    return scores


def k_reciprocal(X: Array, image_of: Sequence[int], Q: Array, *, k1: int, k2: int, lam: float) -> Scores:
    images, q = wholes(X, image_of), whole(Q)
    alone, joined = lists_without_query(images), lists_with_query(images, q)
    half = {g: reciprocal(g, k1 // 2, alone) | {g} for g in images}

    def robust(around: set[int]) -> set[int]:
        more = set(around)
        for g in around:
            if 3 * len(around & half[g]) >= 2 * len(half[g]):
                more |= half[g]
        return more

    def distance(x: Array, z: Array) -> float:
        return float(((x - z) ** 2).sum())

    def encoded(x: Array, around: set[int]) -> dict[int, float]:
        return {g: exp(-distance(x, images[g])) if g in around else 0.0 for g in images}

    def averaged(codes: list[dict[int, float]]) -> dict[int, float]:
        return {g: sum(code[g] for code in codes) / len(codes) for g in images}

    codes = {p: encoded(images[p], robust(reciprocal(p, k1, alone) | {p})) for p in images}
    of_query = encoded(q, robust(reciprocal(QUERY, k1, joined)))
    of_query = averaged([of_query, *(codes[g] for g in joined[QUERY][: k2 - 1])])
    scores = {}
    for image in images:
        code = averaged([codes[image], *(codes[g] for g in alone[image][: k2 - 1])])
        most = sum(max(code[g], of_query[g]) for g in images)
        jaccard = 1 - sum(min(code[g], of_query[g]) for g in images) / most
        scores[image] = -((1 - lam) * jaccard + lam * distance(q, images[image]))
    return scores


def match(regions: dict[int, Array], Q: Array) -> Scores:
    return {image: sum(max(float(x @ q) for x in own) for q in Q) for image, own in regions.items()}


def region_match(X: Array, image_of: Sequence[int], Q: Array) -> Scores:
    return match(regions_of(X, image_of), Q)


def region_match_expansion(X: Array, image_of: Sequence[int], Q: Array, *, neighbours: int) -> Scores:
    regions = regions_of(X, image_of)
    first = match(regions, Q)
    best = sorted(first, key=lambda image: -first[image])[:neighbours]
    expanded = []
    for q in Q:
        total = q.copy()
        for image in best:
            total += max(regions[image], key=lambda x: float(x @ q))
        expanded.append(unit(total))
    return match(regions, np.array(expanded))


def regional_diffusion(X: Array, image_of: Sequence[int], Q: Array, *, k: int, query_k: int) -> Scores:
    return literal.search(X, image_of, Q, k=k, query_k=query_k)


def global_diffusion(X: Array, image_of: Sequence[int], Q: Array, *, k: int, query_k: int) -> Scores:
    images = wholes(X, image_of)
    return literal.search(np.array(list(images.values())), list(images), whole(Q)[None], k=k, query_k=query_k)


Literal = Callable[..., Scores]
