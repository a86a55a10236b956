"""The callers of `build`: a new index, a change of an existing one, and an index of the photos extracted so far.

A `PartialIndex` makes photos searchable while the others are being extracted. The journal of the running build, copied,
is what an interrupted build of a smaller index would have left: the smaller index is made from it without extracting a
photo. It has a whitening and a graph of its own, in a folder of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manifind.checks import check_choice, check_int
from manifind.diffusion.solvers import AUTO as AUTO_SOLVER
from manifind.errors import InvalidInputError
from manifind.features import RegionExtractor
from manifind.features.backbone import absolute_source
from manifind.index.build.build import Changes, build
from manifind.index.build.extractor_factory import make_extractor, network_for
from manifind.index.build.journal import FILES as OF_A_JOURNAL
from manifind.index.build.plan import SyncPlan, plan_folder
from manifind.index.config import PRESETS, given_parameters
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import LOCAL_FEATURES, LocalFeatureConfig
from manifind.index.storage.manifest import FILES, KIND, OWN, WhiteningOrigin
from manifind.index.storage.snapshot import Snapshot
from manifind.io.ignore import FileRules
from manifind.io.video import check_frame_interval
from manifind.kernels import AUTO as AUTO_DEVICE
from manifind.manifold import Manifold
from manifind.storage import disk, store
from manifind.storage.store import Writer


def resolve_config(
    root: Path,
    preset: str,
    given_choices: Mapping[str, Any],
    parameters: Mapping[str, Any],
    *,
    long_side: int | None,
    extractor: RegionExtractor | None,
    regions_per_image: int | None,
    local_features: bool | LocalFeatureConfig | None,
    frames: float | None,
    files: FileRules,
    by_workers: bool,
) -> tuple[BuildConfig, SyncPlan]:
    """Return the configuration of a build, and the photos below the folder.

    The values of the preset hold where `given_choices` (backbone, whiten, scales and pooling) or `parameters` (of
    `Manifold`) lack one. With `by_workers`, Dask's workers extract the photos: then the network does not depend on this
    machine's device. The others are those of `Index.create`.
    """
    regions_per_image = None if regions_per_image is None else check_int(regions_per_image, "regions_per_image")
    choices = PRESETS[check_choice(preset, PRESETS, "preset")]
    chosen: dict[str, Any] = {
        name: getattr(choices, name) if value is None else value for name, value in given_choices.items()
    }
    given = given_parameters({"solver": AUTO_SOLVER, **choices.manifold, **parameters})
    Manifold(**given).check_params()
    frames = None if frames is None else check_frame_interval(frames)
    planned = plan_folder(root, films=frames is not None, files=files)
    source = str(chosen.pop("backbone"))
    if given_choices["backbone"] is None and not by_workers:
        source = network_for(source, len(planned.found), parameters.get("device", AUTO_DEVICE))
    if extractor is None:
        built, origin, learning = make_extractor(source, **chosen, long_side=long_side)
    else:
        built, origin, learning = extractor, WhiteningOrigin(OWN), None
    backbone = absolute_source(source) if extractor is None else None
    keeping = local_features if isinstance(local_features, LocalFeatureConfig) else None
    if local_features is True or (local_features is None and LOCAL_FEATURES.available()):
        keeping = LOCAL_FEATURES
    config = BuildConfig(
        root,
        built,
        given,
        regions_per_image,
        backbone,
        origin,
        learning=learning,
        local_features=keeping,
        frames=frames,
        files=files,
    )
    return config, planned


def check_free(target: Path) -> None:
    """Raise `InvalidInputError` where an index is, or was before its manifest was lost."""
    if (target / store.MANIFEST).exists():
        raise InvalidInputError(f"{target} is an index already; open it and call sync(), or choose another path.")
    if target.is_dir() and store.copies_of_manifest(target):
        raise InvalidInputError(
            f"{target} is an index without its {store.MANIFEST}; manifind index PHOTOS --repair puts it back."
        )


def change_index(
    writer: Writer,
    snapshot: Snapshot,
    config: BuildConfig,
    photos: SyncPlan,
    *,
    retrain_whitening: bool,
    keeping: LocalFeatureConfig | None,
    **options: Any,
) -> Changes:
    """Write a generation with the planned photos; return the changes.

    With `retrain_whitening`, the whitening is learnt again and all photos are extracted with it. `keeping` are the
    local features to store from now on, where the index stores none. `options` are those of `build`.
    """
    first = keeping is not None and config.local_features is None
    if (retrain_whitening or first) and photos.unread:
        what = "a whitening is learnt from" if retrain_whitening else "local features are made of"
        raise InvalidInputError(
            f"{photos.unread[0].key} lies in a folder that cannot be listed; {what} all photos: make it readable."
        )
    if retrain_whitening:
        config = config.to_learn()
    if first:
        config = replace(config, local_features=keeping)
    return build(writer, config, photos, before=snapshot, known=None if retrain_whitening else snapshot, **options)


CHUNK = 2**20


class PartialIndex:
    """Photos that a build has extracted; more may come meanwhile.

    `journal` is the folder of the journal that they are in; the build adds to `images`.
    """

    def __init__(self, config: BuildConfig, journal: Path, images: Sequence[ImageRecord]) -> None:
        self._config, self._journal, self._images = config, journal, images

    def __len__(self) -> int:
        return len(self._images)

    def write(self, path: Path) -> None:
        """Write an index of these photos at `path`, beside the build: in any thread, at any time."""
        images = list(self._images)  # before the journal, which then has all of them
        disk.make_folder(path)
        with store.writing(path, KIND, FILES) as writer:
            disk.make_own_folder(writer.work)
            copy = writer.work / self._journal.name
            disk.make_own_folder(copy)
            for name in OF_A_JOURNAL:
                disk.write(copy / name, _chunks(self._journal / name))
            build(writer, self._config, SyncPlan([], [], images))
            disk.remove_folder(writer.work)


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(CHUNK):
            yield chunk
