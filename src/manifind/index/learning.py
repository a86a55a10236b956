"""A whitening learnt from the photos of an index, while they are described for it.

Photos are described once: their vectors before whitening go into a journal of their own, as they are made. Once all are
there, their moments give the whitening, and the vectors are whitened into the journal that every index is made from.
Both journals are on disk and are taken up again after an interruption; memory does not grow with the collection.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from manifind.describe import Moments, Regions
from manifind.index.catalogue import ImageRecord
from manifind.index.gather import reduced
from manifind.index.journal import Journal
from manifind.index.manifest import LEARNT, WhiteningOrigin
from manifind.index.recipe import Recipe
from manifind.types import StageProgress

ROWS = 2**13
"""How many rows the moments are taken of at a time."""

PHOTOS = 64
"""Photos that are whitened at a time: a product of so many rows is ten times as fast as one for each photo."""

SAMPLE = 20_000
"""Regions that tell over how many dimensions descriptors are spread."""


def settled(recipe: Recipe, raw: Journal, images: list[ImageRecord], report: StageProgress) -> Recipe:
    """Return the recipe with the whitening that the photos in the journal teach."""
    assert recipe.learning is not None  # noqa: S101 (asked by whoever calls)
    report("whitening", 0, len(images))
    vectors, _ = raw.arrays()
    own = Moments.of(_blocks(raw, vectors, images), recipe.describer.pooled_by)
    prior = recipe.learning.prior
    learnt = recipe.learning.whitening(own)
    step = max(1, len(vectors) // SAMPLE)
    origin = WhiteningOrigin(
        LEARNT,
        len(images),
        None if prior is None else recipe.learning.weight,
        spread(learnt.apply(np.asarray(vectors[::step], np.float32))),
    )
    return replace(recipe, describer=recipe.describer.with_whitening(learnt), whitening=origin, learning=None)


def whiten(recipe: Recipe, raw: Journal, journal: Journal, images: list[ImageRecord], report: StageProgress) -> None:
    """Whiten the vectors of photos from one journal into the other."""
    (vectors, boxes), local = raw.arrays(), raw.local()
    whitening = recipe.describer.whitening
    assert whitening is not None  # noqa: S101 (it was just learnt)
    for start in range(0, len(images), PHOTOS):
        group = [image for image in images[start : start + PHOTOS] if journal.get(image.sha256) is None]
        if group:
            entries = [entry for image in group if (entry := raw.get(image.sha256)) is not None]
            places = [slice(entry.first, entry.first + entry.regions) for entry in entries]
            whitened = whitening.apply(np.concatenate([vectors[rows] for rows in places]))
            at = 0
            for image, entry, rows in zip(group, entries, places, strict=True):
                own = Regions(whitened[at : at + entry.regions], np.asarray(boxes[rows]))
                fewer = reduced(own, recipe.means)
                kept = np.asarray(local[entry.local : entry.local + entry.features])
                journal.append(image.sha256, entry.width, entry.height, fewer.vectors, fewer.boxes, kept)
                at += entry.regions
        report("whitening", min(start + PHOTOS, len(images)), len(images))


def spread(vectors: npt.NDArray[np.floating]) -> float:
    """Return over how many dimensions unit vectors are spread: all of them where they vary evenly.

    It is 1 / ‖E[v vᵀ]‖², the number of directions that would hold them if each held as much as the next.
    """
    rows = np.asarray(vectors, np.float32)
    second = rows.T @ rows / len(rows)
    return float(1 / np.square(second, dtype=np.float64).sum())


def _blocks(
    raw: Journal, vectors: npt.NDArray[np.float16], images: list[ImageRecord]
) -> Iterator[npt.NDArray[np.float16]]:
    """Yield the rows of photos in the order in which they stand in the journal, many at a time."""
    entries = [entry for image in images if (entry := raw.get(image.sha256)) is not None]
    entries.sort(key=lambda entry: entry.first)
    rows = np.concatenate([np.arange(entry.first, entry.first + entry.regions) for entry in entries])
    for start in range(0, len(rows), ROWS):
        yield vectors[rows[start : start + ROWS]]
