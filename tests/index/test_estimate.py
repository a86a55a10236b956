"""What a build will take, against what it takes."""

import subprocess
import sys
from pathlib import Path

import pytest

from manifind import kernels
from manifind.features import RegionExtractor
from manifind.index import Index
from manifind.index.build import estimate
from manifind.index.build.gather import ExtractionPlan
from manifind.index.storage.build_config import BuildConfig, WhiteningTraining
from manifind.index.storage.manifest import LEARNT, WhiteningOrigin
from manifind.io import ListedFile
from tests.index.small import SmallBackbone, save_photos, small_extractor

FIT = """
import sys
import numpy as np
from manifind import Manifold
n, d, k, method = *map(int, sys.argv[1:4]), sys.argv[4]
rng = np.random.default_rng(0)
centres = rng.standard_normal((n // 20 + 1, d), np.float32)
X = centres[rng.integers(0, len(centres), n)] + np.float32(0.6) * rng.standard_normal((n, d), np.float32)
X /= np.linalg.norm(X, axis=1, keepdims=True)
Manifold(k=5, knn=method).fit(X[:2000])
def status(name):
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = status("VmRSS")
made = Manifold(k=k, reserve=k // 4, knn=method, memory=2**22).fit(X)
print(status("VmHWM") - before, made.S_.nnz)
"""


@pytest.mark.skipif(not kernels.compiled(), reason="NN-Descent is in the compiled core")
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("method", ["exact", "nn-descent"])
def test_the_memory_of_a_graph_is_what_it_takes(method: str) -> None:
    n, d, k = 30_000, 128, 40
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", FIT, str(n), str(d), str(k), method], check=True, capture_output=True, text=True
    )
    taken, edges = map(int, done.stdout.split())
    told = estimate.graph_memory(method, n, k + k // 4, d, edges)
    assert 0.6 * taken < told + 2**22 < 2.5 * taken


def test_nn_descent_takes_more_than_comparing_all_pairs() -> None:
    exact, descent = (estimate.graph_memory(method, 10**6, 125, 512, 5 * 10**7) for method in ("exact", "nn-descent"))
    assert descent - exact > 10**6 * (512 + 12 * 125)


def test_the_disk_is_counted_with_the_whitening(tmp_path: Path) -> None:
    save_photos(tmp_path / "photos", 6)
    extractor = small_extractor()
    assert extractor.whitening is not None
    made = Index.create(tmp_path / "i.manifind", tmp_path / "photos", extractor=extractor, k=10)
    found = [ListedFile(f"{i}.png", tmp_path / "photos" / f"{i}.png", 1, 1) for i in range(6)]
    told = [
        estimate.estimate(
            BuildConfig(tmp_path, one, {"k": 10}, None, None, WhiteningOrigin("none")),
            ExtractionPlan([], [(one_found, "") for one_found in found], []),
            None,
        )
        for one in (extractor, extractor.with_whitening(None))
    ]
    whitening = extractor.whitening.mean.nbytes + extractor.whitening.project.nbytes
    regions = told[0].regions
    plain = told[1].finished - (regions * 2 + 24) * (extractor.whitening.mean.size - extractor.dimension)
    assert told[0].finished - plain == pytest.approx(whitening, abs=0)
    assert told[0].finished == pytest.approx(made.info()["bytes"], rel=0.7)


def planned(
    photos: int, regions_per_image: int | None = None, *, distributed: bool = False, channels: int = 12
) -> estimate.Estimate:
    """Return what it takes to make an index of so many photos whose whitening is learnt."""
    config = BuildConfig(
        Path("/photos"),
        RegionExtractor(SmallBackbone(channels)),
        {"k": 10},
        regions_per_image,
        None,
        WhiteningOrigin(LEARNT, 0),
        learning=WhiteningTraining(dimension=8),
    )
    found = [(ListedFile(f"{i}.png", Path(f"/photos/{i}.png"), 1, 1), "") for i in range(photos)]
    return estimate.estimate(config, ExtractionPlan([], found, []), None, distributed=distributed)


def test_vectors_before_whitening_are_counted_for_all_regions_whatever_means_are_kept() -> None:
    wide, narrow = (planned(100, regions_per_image=2, channels=channels) for channels in (1000, 12))
    regions = planned(100).regions
    assert wide.regions == 200
    assert (wide.disk - wide.finished) - (narrow.disk - narrow.finished) == 2 * regions * (1000 - 12)


def test_where_workers_make_the_graph_no_room_is_asked_for_vectors_and_lists() -> None:
    few, many = (planned(photos, distributed=True) for photos in (10_000, 20_000))
    edges = 10 // 2
    assert (many.memory - few.memory) / (many.regions - few.regions) == pytest.approx(100 + 16 * edges)
    assert many.memory < planned(20_000).memory
    assert many.disk > planned(20_000).disk, "lists lie in files on their way"
