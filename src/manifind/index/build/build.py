"""Build an index: photos to a new generation on disk.

    plan ─▶ extract into a journal ─▶ train the whitening ─▶ merge regions ─▶ update the graph ─▶ commit

Known photos keep their descriptors. All files are written beside those of the generation before; the finished one
becomes visible by one atomic rename of the manifest.
"""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from manifind import kernels
from manifind.errors import DamagedError, InvalidInputError, ManifindWarning
from manifind.index.build import learning
from manifind.index.build.estimate import OnEstimate, check_resources, reading_limits
from manifind.index.build.extractor_factory import place_on_device
from manifind.index.build.gather import (
    Workers,
    extract_locally,
    extract_missing_features,
    plan_extraction,
    record_outcomes,
    supplement_journal,
    without_features,
)
from manifind.index.build.journal import Journal
from manifind.index.build.merge import (
    GLOBAL,
    LOCAL,
    ROWS,
    VECTORS,
    MergedRegions,
    merge_global_descriptors,
    merge_local_features,
    merge_regions,
)
from manifind.index.build.plan import SyncPlan
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import Catalogue, ImageRecord, SkippedRecord, SkipReason
from manifind.index.storage.layout import note
from manifind.index.storage.manifest import FORMAT, Manifest, read_manifest, read_store
from manifind.index.storage.snapshot import CATALOGUE, Snapshot, measure_null_similarity
from manifind.kernels.costs import COSTS
from manifind.manifold import BUILT, Manifold
from manifind.storage import disk, store
from manifind.types import Progress, StageProgress

JOURNAL, RAW, SINGLE = "described", "raw", "all.f32"
"""In the writer's folder besides the merged regions: the journal of extracted photos, that of photos before a whitening
that is being trained, and the vectors of all regions in single precision."""

OnPartial = Callable[[BuildConfig, Path, list[ImageRecord]], None]


@dataclass(frozen=True)
class Changes:
    """What a build changed, in photos."""

    extracted: int
    """How many photos were extracted: new ones, and those of new content."""
    kept: int
    moved: int
    """How many photos of known content have a new name."""
    removed: int
    skipped: int
    unreadable: tuple[str, ...] = ()
    """The keys of photos that could be read before, are still there, and cannot be read now."""
    supplemented: int = 0
    """How many known photos were given local features, which the index did not store before."""


def build(
    writer: store.Writer,
    config: BuildConfig,
    planned: SyncPlan,
    *,
    before: Snapshot | None = None,
    known: Snapshot | None = None,
    memory: int | None = None,
    progress: StageProgress | None = None,
    on_estimate: OnEstimate | None = None,
    workers: Workers | None = None,
    on_partial: OnPartial | None = None,
) -> Changes:
    """Write a new generation with the planned photos.

    Parameters
    ----------
    writer : Writer
    config : BuildConfig
    planned : SyncPlan
        The photos to index.
    before : Snapshot, optional
        The index as it is.
    known : Snapshot, optional
        The same, where its descriptors and its graph are those of the config; None to build everything again.
    memory : int, optional
        Bytes that the build may take.
    progress, on_estimate : callable, optional
        Called as the work goes on, and once before it with what it will take.
    workers : Workers, optional
        Extract photos and compare regions in place of this process.
    on_partial : callable, optional
        Called after each extracted photo with the config, the journal's folder and all photos so far.
    """
    report = progress or (lambda *_: None)
    asked = config
    with ExitStack() as open_journals:
        name = JOURNAL if config.learning is None else RAW
        journal = open_journals.enter_context(_journal(writer, config, name))
        config, images, skipped, scratch = _extract_new(
            writer,
            config,
            journal,
            planned,
            known,
            memory,
            report,
            on_estimate,
            workers,
            None if on_partial is None else lambda images: on_partial(asked, writer.work / name, images),
        )
        if config.learning is not None:
            raw, config = journal, learning.train_whitening(config, journal, images, report, workers)
            journal = open_journals.enter_context(_journal(writer, config, JOURNAL))
            learning.whiten(config, raw, journal, images, report, workers)
        manifest = config.manifest
        catalogue = Catalogue.of(images, skipped)
        unreadable: list[str] = []
        supplemented = 0
        if known is None or not _is_same_index(known, catalogue, manifest):
            if known is not None:
                _verify(writer.path)
                known.check_ids()
            regions = merge_regions(images, journal, known, writer.work)
            if config.local_features is not None:
                late = without_features(images, known, config)
                extra = open_journals.enter_context(supplement_journal(writer, config)) if late else None
                if extra is not None:
                    unreadable = extract_missing_features(late, config, extra, report, **reading_limits(memory))
                    supplemented = len(late) - len(unreadable)
                local = merge_local_features(images, journal, known, extra, config.local_features, writer.work)
                regions = regions._replace(local=local)
            manifold = _update_graph(writer, config, regions, known, scratch, report, workers)
            report("writing", 0, 1)
            _write(writer, config, catalogue, regions, manifold)
            report("writing", 1, 1)
        if workers is not None:
            workers.clean_up(writer.work)
        used = {image.sha256 for image in images}
        # Photos that an interrupted run extracted stay for the next, unless this run covered all photos.
        if not planned.unread or used.issuperset(journal.contents()):
            disk.remove_folder(writer.work)
        else:
            for name in (VECTORS, SINGLE, GLOBAL, LOCAL):
                disk.remove(writer.work / name)
    changes = _changes(images, skipped, before, known)
    return replace(changes, unreadable=(*changes.unreadable, *unreadable), supplemented=supplemented)


def _journal(writer: store.Writer, config: BuildConfig, name: str) -> Journal:
    return Journal(writer.work / name, config.fingerprint, config.extractor.dimension)


def _extract_new(
    writer: store.Writer,
    config: BuildConfig,
    journal: Journal,
    planned: SyncPlan,
    known: Snapshot | None,
    memory: int | None,
    report: StageProgress,
    on_estimate: OnEstimate | None,
    workers: Workers | None,
    on_partial: Callable[[list[ImageRecord]], None] | None,
) -> tuple[BuildConfig, list[ImageRecord], list[SkippedRecord], int]:
    """Extract the new photos into a journal.

    Return the config with all its parameters, the photos, the skipped files, and the scratch that the graph may use.
    """
    chosen = plan_extraction(planned, journal, None if known is None else known.catalogue, report, config.frames)
    config = config.for_photos(len(chosen.known) + len(chosen.new))
    device = config.parameters.get("device", kernels.AUTO) if workers is None else kernels.CPU
    with place_on_device(config.extractor, len(chosen.new), device, config.local_features) as extractor:
        made_by = replace(config, extractor=extractor)
        scratch = check_resources(
            writer.path, made_by, chosen, known, memory, on_estimate, distributed=workers is not None
        )
        note(writer.work, config.root, len(chosen.known) + len(chosen.new))
        # Means are taken of whitened vectors.
        regions_per_image = config.regions_per_image if config.learning is None else None
        files = [file for file, _ in chosen.new]
        if workers is None:
            outcomes = extract_locally(
                files, extractor, regions_per_image, config.local_features, **reading_limits(memory)
            )
        else:
            outcomes = workers.extract(files, config, regions_per_image, writer.work)
        images, skipped = record_outcomes(chosen, outcomes, journal, report, on_partial)
    if not images:
        disk.remove_folder(writer.work)
        reasons = "; ".join(f"{file.key}: {file.reason}" for file in skipped[:3]) or "it is empty"
        raise InvalidInputError(
            f"{config.root} has no photo that can be read ({reasons}); give a folder with at least one."
        )
    return config, images, skipped, scratch


def rebuild(
    writer: store.Writer, config: BuildConfig, regions: MergedRegions, catalogue: Catalogue, report: StageProgress
) -> None:
    """Build the graph again from descriptors that are whole, and write it."""
    disk.make_own_folder(writer.work)
    _write(writer, config, catalogue, regions, _fit_graph(writer, config.manifold(), regions, report))
    disk.remove_folder(writer.work)


def _verify(path: Path) -> None:
    """Read through what a new generation is to be made of: damage must not be signed for again."""
    try:
        read_store(path, verify=True)
    except DamagedError as error:
        remedy = "manifind index PHOTOS --repair mends it"
        raise DamagedError(error.problem, remedy=remedy, code=error.code) from error


def _changes(
    images: list[ImageRecord], skipped: list[SkippedRecord], before: Snapshot | None, known: Snapshot | None
) -> Changes:
    old = {} if before is None else {record.sha256: record.key for record in before.catalogue.images}
    keys = {record.key for record in images}
    contents = {record.sha256 for record in images}
    new = len(images) if known is None else sum(record.sha256 not in old for record in images)
    moved = 0 if known is None else sum(old.get(record.sha256, record.key) != record.key for record in images)
    gone = {key for content, key in old.items() if key not in keys and content not in contents}
    there = {record.key for record in skipped if record.code not in (SkipReason.REMOVED, SkipReason.DUPLICATE)}
    return Changes(
        extracted=new,
        kept=len(images) - new - moved,
        moved=moved,
        removed=len(gone - there),
        skipped=len(skipped),
        unreadable=tuple(sorted(gone & there)),
    )


def _is_same_index(before: Snapshot, catalogue: Catalogue, manifest: Manifest) -> bool:
    old = before.catalogue
    same = (old.images, old.skipped) == (catalogue.images, catalogue.skipped)
    return same and before.manifest.has_same_config(manifest)


def _update_graph(
    writer: store.Writer,
    config: BuildConfig,
    regions: MergedRegions,
    before: Snapshot | None,
    scratch: int,
    report: StageProgress,
    workers: Workers | None,
) -> Manifold | None:
    """Return the manifold of the regions; None where it is the one before."""
    origin = regions.origin
    if before is None or origin is None or (origin < 0).mean() > COSTS.max_new_share:
        return _fit_graph(writer, config.manifold(memory=scratch), regions, report, workers)
    if np.array_equal(origin, np.arange(len(before.boxes))):
        return None
    known, arrays = before.manifold.to_arrays()
    manifold = Manifold.from_arrays({**config.parameters, "memory": scratch, BUILT: known[BUILT]}, arrays)
    vectors, image_of, progress = regions.vectors, regions.image_of, _graph_progress(report)
    if workers is None:
        return manifold.update(vectors, image_of, origin, progress=progress)
    builder = workers.knn_builder(vectors, writer.work / VECTORS)
    globals_ = merge_global_descriptors(vectors, image_of, writer.work)
    return manifold.update(vectors, image_of, origin, global_vectors=globals_, builder=builder, progress=progress)


def _write(
    writer: store.Writer, config: BuildConfig, catalogue: Catalogue, regions: MergedRegions, manifold: Manifold | None
) -> None:
    files = {CATALOGUE: catalogue.to_bytes()}
    if manifold is None:
        # Names or times changed, and no region: all but the catalogue stays, and features may join it.
        present = read_manifest(writer.path)
        kept = {name: listed for name, listed in present["files"].items() if name != CATALOGUE}
        manifest, present_manifest = config.manifest, Manifest.of(present["fields"])
        new = regions.local.arrays if regions.local is not None and present_manifest.local_features is None else {}
        writer.write(
            FORMAT,
            replace(manifest, built=present_manifest.built, null_similarity=present_manifest.null_similarity).fields,
            new,
            files,
            keep=kept,
        )
        return
    if len(regions.boxes) > COSTS.max_whole_regions and kernels.compiled():
        manifold.prepare("local")
    _, arrays = manifold.to_arrays()
    learnt = config.extractor.whitening
    whitening = {} if learnt is None else {"whitening_mean": learnt.mean, "whitening_project": learnt.project}
    local = {} if regions.local is None else regions.local.arrays
    null_similarity = measure_null_similarity(regions.vectors, regions.image_of, config.null_similarity)
    writer.write(
        FORMAT,
        replace(config.manifest, built=manifold.graph_, null_similarity=null_similarity).fields,
        {**arrays, "vectors": regions.vectors, "boxes": regions.boxes, **whitening, **local},
        files,
    )


def _fit_graph(
    writer: store.Writer,
    manifold: Manifold,
    regions: MergedRegions,
    report: StageProgress,
    workers: Workers | None = None,
) -> Manifold:
    """Build the whole graph, on vectors widened into a file: comparing all pairs reads them again and again."""
    single = disk.scratch(writer.work / SINGLE, np.float32, regions.vectors.shape)
    for start in range(0, len(single), ROWS):
        single[start : start + ROWS] = regions.vectors[start : start + ROWS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifindWarning)  # a folder of a few photos has fewer regions than k
        builder = None if workers is None else workers.knn_builder(single, writer.work / SINGLE)
        globals_ = merge_global_descriptors(single, regions.image_of, writer.work)
        return manifold.fit(
            single, regions.image_of, global_vectors=globals_, builder=builder, progress=_graph_progress(report)
        )


def _graph_progress(report: StageProgress) -> Progress:
    return lambda done, total: report("graph", done, total)
