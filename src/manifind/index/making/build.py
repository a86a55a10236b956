"""Photos → a new generation of an index on disk.

Photos that are known keep their descriptions, the others are described into a journal, the graph follows what changed,
and all of it is written beside what is there. What becomes visible is the finished generation.
"""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from manifind import kernels
from manifind.diffusion.engines import WHOLE_UP_TO
from manifind.errors import Damaged, InvalidInput, ManifindWarning
from manifind.index.making import learning
from manifind.index.making.assembling import (
    GLOBAL,
    LOCAL,
    ROWS,
    VECTORS,
    Assembled,
    assembled,
    assembled_features,
    assembled_globals,
)
from manifind.index.making.device import describing
from manifind.index.making.estimate import Announce, admitted, reading_limits
from manifind.index.making.gather import described, described_here, plan
from manifind.index.making.journal import Journal
from manifind.index.making.supplement import supplement, supplement_journal, without_features
from manifind.index.making.wanted import Wanted
from manifind.index.making.workers import Workers
from manifind.index.state.catalogue import REMOVED, SAME, Catalogue, ImageRecord, SkippedRecord
from manifind.index.state.chance import measure_unlikely
from manifind.index.state.generation import CATALOGUE, Generation
from manifind.index.state.manifest import FORMAT, KIND, Manifest
from manifind.index.state.recipe import Recipe
from manifind.index.state.unfinished import note
from manifind.manifold import BUILT, LARGEST_CHANGE, Manifold
from manifind.storage import disk, store
from manifind.types import Progress, StageProgress

JOURNAL, RAW, SINGLE = "described", "raw", "all.f32"
"""What the writer's folder holds besides what was assembled: photos described so far, the same before whitening where
that is learnt, and the vectors of all in single precision."""

Growing = Callable[[Recipe, Path, list[ImageRecord]], None]


@dataclass(frozen=True)
class Changes:
    """What bringing an index up to date did, in photos."""

    described: int
    """How many photos were described, because they are new or their content is."""
    kept: int
    moved: int
    """How many photos of known content have a new name."""
    removed: int
    skipped: int
    unreadable: tuple[str, ...] = ()
    """The keys of photos that could be read before, are still there, and cannot be read now."""
    supplemented: int = 0
    """How many photos that had been described before were given local features, which the index did not keep then."""


def build(
    writer: store.Writer,
    recipe: Recipe,
    wanted: Wanted,
    *,
    before: Generation | None = None,
    known: Generation | None = None,
    memory: int | None = None,
    progress: StageProgress | None = None,
    announce: Announce | None = None,
    workers: Workers | None = None,
    growing: Growing | None = None,
) -> Changes:
    """Bring the index to the photos wanted.

    Parameters
    ----------
    writer, recipe, wanted
        Who writes, how photos become an index, and which photos.
    before : Generation, optional
        The index as it is.
    known : Generation, optional
        The same, where its descriptions and its graph are those of the recipe; None to make all of it anew.
    memory : int, optional
        Bytes that the build may take.
    progress, announce : callable, optional
        Called as the work goes on, and once before it with what it will take.
    workers : Workers, optional
        Who describes photos and compares regions in place of this process.
    growing : callable, optional
        Called after each photo that was described with the recipe, the journal's folder and all photos so far.
    """
    report = progress or (lambda *_: None)
    asked = recipe
    with ExitStack() as open_journals:
        name = JOURNAL if recipe.learning is None else RAW
        journal = open_journals.enter_context(_journal(writer, recipe, name))
        recipe, images, skipped, scratch = _described(
            writer,
            recipe,
            journal,
            wanted,
            known,
            memory,
            report,
            announce,
            workers,
            None if growing is None else lambda images: growing(asked, writer.work / name, images),
        )
        if recipe.learning is not None:
            raw, recipe = journal, learning.settled(recipe, journal, images, report, workers)
            journal = open_journals.enter_context(_journal(writer, recipe, JOURNAL))
            learning.whiten(recipe, raw, journal, images, report, workers)
        manifest = recipe.manifest
        catalogue = Catalogue.of(images, skipped)
        unreadable: list[str] = []
        supplemented = 0
        if known is None or not _same(known, catalogue, manifest):
            if known is not None:
                _verify(writer.path)
                known.check_ids()
            regions = assembled(images, journal, known, writer.work)
            if recipe.geometry is not None:
                late = without_features(images, known, recipe)
                extra = open_journals.enter_context(supplement_journal(writer, recipe)) if late else None
                if extra is not None:
                    unreadable = supplement(late, recipe, extra, report, **reading_limits(memory))
                    supplemented = len(late) - len(unreadable)
                local = assembled_features(images, journal, known, extra, recipe.geometry, writer.work)
                regions = regions._replace(local=local)
            manifold = _manifold(writer, recipe, regions, known, scratch, report, workers)
            _write(writer, recipe, catalogue, regions, manifold)
        if workers is not None:
            workers.finished(writer.work)
        used = {image.sha256 for image in images}
        # Photos that an interrupted run described stay for the next, unless this one looked at all there are.
        if not wanted.unread or used.issuperset(journal.contents()):
            disk.remove_folder(writer.work)
        else:
            for name in (VECTORS, SINGLE, GLOBAL, LOCAL):
                disk.remove(writer.work / name)
    changes = _changes(images, skipped, before, known)
    return replace(changes, unreadable=(*changes.unreadable, *unreadable), supplemented=supplemented)


def _journal(writer: store.Writer, recipe: Recipe, name: str) -> Journal:
    return Journal(writer.work / name, recipe.fingerprint, recipe.describer.dimension)


def _described(
    writer: store.Writer,
    recipe: Recipe,
    journal: Journal,
    wanted: Wanted,
    known: Generation | None,
    memory: int | None,
    report: StageProgress,
    announce: Announce | None,
    workers: Workers | None,
    growing: Callable[[list[ImageRecord]], None] | None,
) -> tuple[Recipe, list[ImageRecord], list[SkippedRecord], int]:
    """Describe into a journal what is not known.

    Return the recipe with all its parameters, the photos, what was passed over, and the scratch that the graph may use.
    """
    chosen = plan(wanted, journal, None if known is None else known.catalogue, report, recipe.frames)
    recipe = recipe.for_photos(len(chosen.known) + len(chosen.new))
    device = recipe.parameters.get("device", kernels.CPU) if workers is None else kernels.CPU
    with describing(recipe.describer, len(chosen.new), device, recipe.geometry) as describer:
        made_by, elsewhere = replace(recipe, describer=describer), workers is not None
        scratch = admitted(writer.path, made_by, chosen, known, memory, announce, elsewhere=elsewhere)
        note(writer.work, recipe.root, len(chosen.known) + len(chosen.new))
        # Means are taken of whitened vectors.
        means = recipe.means if recipe.learning is None else None
        found = [one for one, _ in chosen.new]
        if workers is None:
            outcomes = described_here(found, describer, means, recipe.geometry, **reading_limits(memory))
        else:
            outcomes = workers.described(found, recipe, means, writer.work)
        images, skipped = described(chosen, outcomes, journal, report, growing)
    if not images:
        disk.remove_folder(writer.work)
        reasons = "; ".join(f"{one.key}: {one.reason}" for one in skipped[:3]) or "it is empty"
        raise InvalidInput(f"{recipe.root} has no photo that can be read ({reasons}); give a folder with at least one.")
    return recipe, images, skipped, scratch


def rebuild(
    writer: store.Writer,
    recipe: Recipe,
    regions: Assembled,
    catalogue: Catalogue,
    report: StageProgress,
    accept: Callable[[Manifold], bool] = lambda _: True,
) -> None:
    """Make the graph anew from descriptions that are whole, and write it if it is accepted."""
    disk.make_own_folder(writer.work)
    manifold = _fitted(writer, recipe.manifold(), regions, report)
    if accept(manifold):
        _write(writer, recipe, catalogue, regions, manifold)
    disk.remove_folder(writer.work)


def _verify(path: Path) -> None:
    """Read through what a new generation is to be made of: damage must not be signed for anew."""
    try:
        store.read(path, KIND, FORMAT, verify=True)
    except Damaged as error:
        raise Damaged(f"{str(error).partition(';')[0]}; manifind index PHOTOS --repair mends it.") from error


def _changes(
    images: list[ImageRecord], skipped: list[SkippedRecord], before: Generation | None, known: Generation | None
) -> Changes:
    old = {} if before is None else {one.sha256: one.key for one in before.catalogue.images}
    keys = {one.key for one in images}
    contents = {one.sha256 for one in images}
    new = len(images) if known is None else sum(one.sha256 not in old for one in images)
    moved = 0 if known is None else sum(old.get(one.sha256, one.key) != one.key for one in images)
    gone = {key for content, key in old.items() if key not in keys and content not in contents}
    there = {one.key for one in skipped if one.reason != REMOVED and not one.reason.startswith(SAME)}
    return Changes(
        described=new,
        kept=len(images) - new - moved,
        moved=moved,
        removed=len(gone - there),
        skipped=len(skipped),
        unreadable=tuple(sorted(gone & there)),
    )


def _same(before: Generation, catalogue: Catalogue, manifest: Manifest) -> bool:
    old = before.catalogue
    same = (old.images, old.skipped) == (catalogue.images, catalogue.skipped)
    return same and before.manifest.asks_for_the_same(manifest)


def _manifold(
    writer: store.Writer,
    recipe: Recipe,
    regions: Assembled,
    before: Generation | None,
    scratch: int,
    report: StageProgress,
    workers: Workers | None,
) -> Manifold | None:
    """Return the manifold of the regions; None where it is the one before."""
    origin = regions.origin
    if before is None or origin is None or (origin < 0).mean() > LARGEST_CHANGE:
        return _fitted(writer, recipe.manifold(memory=scratch), regions, report, workers)
    if np.array_equal(origin, np.arange(len(before.boxes))):
        return None
    known, arrays = before.manifold.to_arrays()
    manifold = Manifold.from_arrays({**recipe.parameters, "memory": scratch, BUILT: known[BUILT]}, arrays)
    return manifold.update(regions.vectors, regions.image_of, origin, progress=_of_graph(report))


def _write(
    writer: store.Writer, recipe: Recipe, catalogue: Catalogue, regions: Assembled, manifold: Manifold | None
) -> None:
    files = {CATALOGUE: catalogue.to_bytes()}
    if manifold is None:
        # Names or times changed, and no region: all but the catalogue stays, and features may join it.
        present = store.read_manifest(writer.path, KIND, FORMAT)
        kept = {name: listed for name, listed in present["files"].items() if name != CATALOGUE}
        manifest, said = recipe.manifest, Manifest.of(present["fields"])
        new = regions.local.arrays if regions.local is not None and said.geometry is None else {}
        writer.write(FORMAT, replace(manifest, built=said.built, unlikely=said.unlikely).fields, new, files, keep=kept)
        return
    if len(regions.boxes) > WHOLE_UP_TO and kernels.compiled():
        manifold.prepare("local")
    _, arrays = manifold.to_arrays()
    learnt = recipe.describer.whitening
    whitening = {} if learnt is None else {"whitening_mean": learnt.mean, "whitening_project": learnt.project}
    local = {} if regions.local is None else regions.local.arrays
    unlikely = measure_unlikely(regions.vectors, regions.image_of)
    writer.write(
        FORMAT,
        replace(recipe.manifest, built=manifold.graph_, unlikely=unlikely).fields,
        {**arrays, "vectors": regions.vectors, "boxes": regions.boxes, **whitening, **local},
        files,
    )


def _fitted(
    writer: store.Writer,
    manifold: Manifold,
    regions: Assembled,
    report: StageProgress,
    workers: Workers | None = None,
) -> Manifold:
    """Build the whole graph, on vectors widened into a file: comparing all pairs reads them again and again."""
    single = disk.scratch(writer.work / SINGLE, np.float32, regions.vectors.shape)
    for start in range(0, len(single), ROWS):
        single[start : start + ROWS] = regions.vectors[start : start + ROWS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifindWarning)  # a folder of a few photos has fewer regions than k
        rows = None if workers is None else workers.rows(single, writer.work / SINGLE)
        globals_ = assembled_globals(single, regions.image_of, writer.work)
        return manifold.fit(single, regions.image_of, global_vectors=globals_, rows=rows, progress=_of_graph(report))


def _of_graph(report: StageProgress) -> Progress:
    return lambda done, total: report("graph", done, total)
