"""A new generation of an index, whose descriptions its own verified pairs have taught."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from manifind.describe import Whitening
from manifind.describe.moments import PRIOR
from manifind.describe.whitening import unit_rows
from manifind.errors import InvalidInput
from manifind.index.asking.features import features_of, kept_or_file, kind_of
from manifind.index.making.assembling import VECTORS, Assembled
from manifind.index.making.build import rebuild
from manifind.index.making.learning import SAMPLE, spread
from manifind.index.state.catalogue import Catalogue
from manifind.index.state.generation import Generation
from manifind.index.state.manifest import LEARNT, WhiteningOrigin
from manifind.index.state.recipe import Recipe
from manifind.index.tending.pairs import PhotoPair, likely_pairs, verified_pairs
from manifind.index.tending.teaching import Taught, diffused_rank, taught
from manifind.manifold import Manifold
from manifind.storage import disk, store
from manifind.types import FloatArray, StageProgress

ROWS = 2**14
"""Rows that are multiplied at a time."""
AT_HAND = 500
"""Photos whose features are kept in memory."""


def teach(writer: store.Writer, recipe: Recipe, now: Generation, report: StageProgress) -> Taught:
    """Learn from the verified pairs of an index; write a new generation where that helps.

    Parameters
    ----------
    writer, recipe
        Who writes, and how photos became the index.
    now : Generation
        The index as it is.
    report : callable
        Called with the stage, how much of it is done, and how much there is.
    """
    if recipe.means is not None:
        raise InvalidInput("the index keeps means of regions, which match no region; make it without means to learn.")
    learnt = taught(now.manifold.vectors_, now.manifold.layout_.starts, pairs_of(now, report))
    return _written(writer, recipe, now, learnt, report) if learnt.helps else learnt


def pairs_of(now: Generation, report: StageProgress) -> list[PhotoPair]:
    """Return the pairs of photos of an index that geometry joins, with the regions that match."""
    now.check_ids()
    kind = kind_of(now)
    return list(
        verified_pairs(
            likely_pairs(now.manifold.S_, now.manifold.layout_.place_of),
            lru_cache(AT_HAND)(lambda image: features_of(kept_or_file(now, now.catalogue[image]), kind=kind)),
            lambda image: np.asarray(now.boxes[now.regions_of(image)], np.float32),
            lambda done, total: report("pairs", done, total),
        )
    )


def composed(before: Whitening | None, project: FloatArray, pooling: str) -> Whitening:
    """Return one whitening for a whitening that is followed by a linear map; without one, the map alone."""
    if before is None:
        return Whitening(np.zeros(len(project), np.float32), project, pooling)
    return Whitening(before.mean, (before.project.astype(np.float64) @ project).astype(np.float32), pooling)


def _written(writer: store.Writer, recipe: Recipe, now: Generation, learnt: Taught, report: StageProgress) -> Taught:
    """Make the new graph, let diffusion judge by it, and write it where it helps; return what was learnt, judged."""
    describer = recipe.describer
    whitening = composed(describer.whitening, learnt.project, describer.pooled_by)
    old = now.manifold.vectors_
    disk.make_own_folder(writer.work)
    vectors = disk.scratch(writer.work / VECTORS, np.float16, old.shape)
    try:
        for start in range(0, len(old), ROWS):
            block = slice(start, start + ROWS)
            vectors[block] = unit_rows(np.asarray(old[block], np.float32) @ learnt.project)
        origin = WhiteningOrigin(
            LEARNT,
            len(now.catalogue),
            # Learnt again, it is mixed as before; one that never was learnt, as any other.
            recipe.whitening.prior if recipe.whitening.source == LEARNT else PRIOR,
            spread(vectors[:: max(1, len(vectors) // SAMPLE)]),
            learnt.pairs,
        )
        regions = Assembled(vectors, np.asarray(now.boxes), now.manifold.layout_.place_of, local=now.local)
        taught_by = replace(recipe, describer=describer.with_whitening(whitening), whitening=origin)
        catalogue = Catalogue.of(now.catalogue.images, now.catalogue.skipped)

        def helps(manifold: Manifold) -> bool:
            nonlocal learnt
            if learnt.exams:
                before, after = (diffused_rank(one, learnt.exams, len(catalogue)) for one in (now.manifold, manifold))
                learnt = replace(learnt, diffused=(before, after))
            return learnt.helps

        rebuild(writer, taught_by, regions, catalogue, report, accept=helps)
        return learnt
    finally:
        disk.remove(writer.work / VECTORS)
