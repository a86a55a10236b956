"""A damaged index made whole: what can be rebuilt is rebuilt from what is whole, the rest from the photos."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manifind.errors import DamagedError, FormatVersionError, InvalidInputError, ManifindError, shell_quote
from manifind.features import RegionExtractor, Whitening, load_extractor
from manifind.index.build.build import build, rebuild
from manifind.index.build.merge import MergedRegions
from manifind.index.build.plan import plan_folder, removed_keys
from manifind.index.maintenance.check import DESCRIPTOR_FILES, LOCAL, WHITENING, check, damaged_files
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import Catalogue
from manifind.index.storage.local_features import LocalFeatureConfig, StoredLocalFeatures
from manifind.index.storage.manifest import (
    FILES,
    KIND,
    LEARNT,
    OWN,
    SHIPPED,
    Fingerprint,
    Manifest,
    read_manifest,
)
from manifind.index.storage.snapshot import CATALOGUE
from manifind.storage import disk, store
from manifind.storage.arrays import read_array
from manifind.types import StageProgress


def repair(
    path: Path,
    photos: Path | None = None,
    extractor: RegionExtractor | None = None,
    memory: int | None = None,
    progress: StageProgress | None = None,
) -> str:
    """Repair the index at `path`, and say what was done; `photos` is their folder, where it is another one now."""
    report = progress or (lambda *_: None)
    if not path.is_dir():
        raise InvalidInputError(f"{path} is not there; there is nothing to repair.")
    with store.writing(path, KIND, FILES) as writer:
        problems = [problem for problem in check(path, progress) if problem.is_damage]
        if not problems:
            return "nothing is damaged"
        name, stored = _read_manifest_or_copy(path)
        manifest, files = Manifest.of(stored["fields"]), stored["files"]
        root = manifest.root if photos is None else photos
        bad = {damaged.what for damaged in damaged_files(path, stored, report)}
        whole = {file: path / listed["file"] for file, listed in files.items() if listed["file"] not in bad}
        if name != store.MANIFEST and not bad:
            disk.write(path / store.DRAFT, [(path / name).read_bytes()])
            disk.replace(path / store.DRAFT, path / store.MANIFEST)
            return "the manifest was put back from its copy"
        by_content = {problem.what for problem in problems} & {"vectors", "boxes", "features", str(path)}
        restored, lost = _restore_extractor(manifest, whole, extractor)
        config = BuildConfig.of(manifest, restored, root)
        if lost:
            config = _with_whitening_to_train(config, manifest)
        needed = {*DESCRIPTOR_FILES, *(LOCAL if manifest.local_features is not None else ())}
        if needed <= set(whole) and not by_content and not lost:
            rebuild(
                writer,
                config,
                _read_regions(whole, manifest.local_features),
                Catalogue.open(whole[CATALOGUE]),
                report,
            )
            return "the graph was built anew from the descriptors"
        removed = removed_keys(Catalogue.open(whole[CATALOGUE]).skipped) if CATALOGUE in whole else []
        changes = build(
            writer,
            config,
            plan_folder(root, removed, films=manifest.frames is not None, files=manifest.files),
            memory=memory,
            progress=progress,
        )
        learnt = "the whitening was learnt and " if lost else ""
        return f"{learnt}{changes.extracted} photos were extracted again"


def repair_command(path: Path) -> str:
    """Return what to type to have the index at `path` repaired, with the folder of its photos where that is known."""
    try:
        photos = shell_quote(Manifest.of(_read_manifest_or_copy(path)[1]["fields"]).root)
    except ManifindError:
        photos = "PHOTOS"
    return f"manifind index {photos} -o {shell_quote(path)} --repair"


def _read_manifest_or_copy(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the manifest, or the newest whole copy of it, and its name."""
    for name in (store.MANIFEST, *store.copies_of_manifest(path)):
        try:
            return name, read_manifest(path, name)
        except FormatVersionError:
            raise
        except DamagedError:
            continue
    raise DamagedError(f"{path} has nothing left that says how it was made; remove it and make it again.")


def _restore_extractor(
    manifest: Manifest, whole: dict[str, Path], given: RegionExtractor | None
) -> tuple[RegionExtractor, bool]:
    """Return the extractor of the photos, and whether its whitening is lost and must be learnt again."""
    source = manifest.whitening.source
    if given is None and manifest.backbone is None:
        raise InvalidInputError("the index was made by a custom extractor; give the same to Index.repair(extractor=…).")
    restored = given or load_extractor(manifest.backbone or "", **manifest.extractor_settings)
    if manifest.extractor.whitening is None:
        restored = restored.with_whitening(None)
    elif set(WHITENING) <= set(whole):
        mean, project = (read_array(whole[name]) for name in WHITENING)
        restored = restored.with_whitening(Whitening(mean, project))
    elif source == LEARNT:
        return restored, True
    elif source not in (SHIPPED, OWN) and Path(source).is_file():
        restored = restored.with_whitening(Whitening.load(source))
    fingerprint = Fingerprint.of(restored)
    if fingerprint.sha256 != manifest.extractor.sha256:
        raise InvalidInputError(
            f"the index was extracted by {manifest.extractor.name} with other settings or another whitening than "
            f"{fingerprint.name} has here; give the extractor that made it, or make the index again."
        )
    return restored, False


def _with_whitening_to_train(config: BuildConfig, manifest: Manifest) -> BuildConfig:
    """Return the config with a whitening to be learnt in place of one that is lost."""
    if manifest.extractor.without_whitening() != Fingerprint.of(config.extractor).without_whitening():
        raise InvalidInputError("extractor is not the one that made the index; give that one.")
    dimension = manifest.extractor.facts["dimension"]
    to_learn = config.to_learn()
    assert to_learn.learning is not None  # noqa: S101 (it was just asked for)
    return replace(to_learn, learning=replace(to_learn.learning, dimension=dimension))


def _read_regions(whole: dict[str, Path], keeping: LocalFeatureConfig | None) -> MergedRegions:
    vectors, boxes, images, starts = (
        read_array(whole[f"{name}.npy"]) for name in ("vectors", "boxes", "images", "starts")
    )
    local = None if keeping is None else StoredLocalFeatures(keeping, *(read_array(whole[name]) for name in LOCAL))
    return MergedRegions(vectors, boxes, np.repeat(images, np.diff(starts)), local=local)
