"""Which extractor an index uses, and where it runs.

A new index has the extractor that the arguments of `Index.create` name. The photos and queries of an existing index
have the extractor of its manifest. Either runs on the GPU where one can be used, else on the processor.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manifind.errors import InvalidInputError
from manifind.features import RegionExtractor, Whitening, load_extractor, shipped_moments
from manifind.features.cuda import on_gpu
from manifind.geometry.cuda import on_gpu as features_on_gpu
from manifind.index.storage.build_config import WhiteningTraining
from manifind.index.storage.local_features import LocalFeatureConfig
from manifind.index.storage.manifest import LEARNT, NONE, SHIPPED, Fingerprint, WhiteningOrigin
from manifind.index.storage.snapshot import AnySnapshot
from manifind.kernels import AUTO, CPU, CUDA, backend
from manifind.kernels.costs import COSTS

if TYPE_CHECKING:
    from manifind.geometry.cuda.sift import Finder

log = logging.getLogger("manifind.device")

GPU_NETWORK = "mobilenet_v2"


def make_extractor(
    source: str, whiten: str | os.PathLike[str], scales: Sequence[float], pooling: str | None, long_side: int | None
) -> tuple[RegionExtractor, WhiteningOrigin, WhiteningTraining | None]:
    """Return an extractor, the origin of its whitening, and how to learn the whitening if that is to be done."""
    given = {"scales": scales, "pooling": pooling, "long_side": long_side}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if whiten in ("auto", "shipped"):
        made = load_extractor(source, **settings)
        prior = shipped_moments(made) if whiten == "auto" else None
        if prior is not None:
            return made.with_whitening(None), WhiteningOrigin(LEARNT, 0), WhiteningTraining(prior)
        return made, WhiteningOrigin(NONE if made.whitening is None else SHIPPED), None
    bare = load_extractor(source, whitening=None, **settings)
    if whiten == "none":
        return bare, WhiteningOrigin(NONE), None
    if whiten == "learn":
        return bare, WhiteningOrigin(LEARNT, 0), WhiteningTraining()
    file = Path(whiten)
    return bare.with_whitening(Whitening.load(file)), WhiteningOrigin(str(file.resolve())), None


def extractor_of(snapshot: AnySnapshot, given: RegionExtractor | None, where: str) -> RegionExtractor:
    """Return the extractor of a snapshot's photos; the snapshot's cache holds it.

    `given` is the extractor of an index that was made by a custom extractor; `where` is what messages call the index.
    """
    with snapshot.cache.lock:
        if snapshot.cache.extractor is None:
            snapshot.cache.extractor = _check_fingerprint(_load(snapshot, given, where), snapshot, where)
        return snapshot.cache.extractor


def _load(snapshot: AnySnapshot, given: RegionExtractor | None, where: str) -> RegionExtractor:
    manifest = snapshot.manifest
    if given is not None:
        return given.with_whitening(snapshot.whitening) if manifest.whitening.source == LEARNT else given
    if manifest.backbone is None:
        raise InvalidInputError(f"{where} was made by a custom extractor; give the same to Index.open(extractor=…).")
    return load_extractor(manifest.backbone, whitening=snapshot.whitening, **manifest.extractor_settings)


def _check_fingerprint(extractor: RegionExtractor, snapshot: AnySnapshot, where: str) -> RegionExtractor:
    """Return the extractor if its fingerprint is that of the index; refuse any other."""
    stored, given = snapshot.manifest.extractor, Fingerprint.of(extractor)
    if stored.sha256 != given.sha256:
        raise InvalidInputError(
            f"{where} was made by {stored.name}; queries of this {given.name} cannot be compared "
            f"with it ({', '.join(stored.differences(given))} differ). Use the same backbone and settings."
        )
    return extractor


def network_for(usual: str, photos: int, device: str = AUTO) -> str:
    """Return the default network for so many photos on a device; `usual` on the CPU.

    On a GPU it is the one in half precision, which takes no longer there than whole numbers would.
    """
    on_a_gpu = photos >= COSTS.min_gpu_photos and device != CPU and backend(device).name == CUDA
    return GPU_NETWORK if on_a_gpu else usual


@contextmanager
def place_on_device(
    extractor: RegionExtractor, photos: int, device: str = AUTO, keeping: LocalFeatureConfig | None = None
) -> Iterator[RegionExtractor]:
    """Yield the extractor on the device that suits so many photos; log the device and the reason.

    Descriptors of the GPU equal those of the processor but for rounding (`manifind.features.cuda`), and the fingerprint
    is the same: an index may have photos of both. The same holds for local features: if the index stores them, the
    extractor on the GPU returns them beside the regions (`manifind.geometry.cuda`).
    """
    if not photos or device == CPU or backend(device).name != CUDA:
        yield extractor
        return
    if photos < COSTS.min_gpu_photos:
        log.info("regions are extracted on the processor: %d photos are too few to start the GPU", photos)
        yield extractor
        return
    try:
        made = on_gpu(extractor, gpu_feature_finder(keeping))
    except InvalidInputError as reason:
        log.info("regions are extracted on the processor, because %s", reason)
        yield extractor
        return
    log.info("%s are extracted on the GPU", "regions and local features" if made.extract_local else "regions")
    try:
        yield made
    finally:
        made.close()


def gpu_feature_finder(keeping: LocalFeatureConfig | None) -> "Finder | None":
    """Return what finds local features on the GPU; None where none are kept or where it cannot, which the log says."""
    if keeping is None:
        return None
    try:
        return features_on_gpu(keeping.kind, keeping.max_keypoints, keeping.long_side, keeping.max_enlargement)
    except InvalidInputError as reason:
        log.info("local features are found on the processor, because %s", reason)
        return None
