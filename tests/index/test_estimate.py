"""What a build will take, against what it takes."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from manifind import kernels
from manifind.describe import Describer, Found
from manifind.graph import exact_neighbours, expected_seconds
from manifind.index import Index
from manifind.index.making import estimate
from manifind.index.making.gather import Plan
from manifind.index.state.manifest import LEARNT, WhiteningOrigin
from manifind.index.state.recipe import Learning, Recipe
from tests.index.small import SmallBackbone, save_photos, small_describer

FIT = """
import sys
import numpy as np
from manifind import Manifold
n, d, k, method = *map(int, sys.argv[1:4]), sys.argv[4]
rng = np.random.default_rng(0)
centres = rng.standard_normal((n // 20 + 1, d), np.float32)
X = centres[rng.integers(0, len(centres), n)] + np.float32(0.6) * rng.standard_normal((n, d), np.float32)
X /= np.linalg.norm(X, axis=1, keepdims=True)
Manifold(k=5, graph=method).fit(X[:2000])
def status(name):
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = status("VmRSS")
made = Manifold(k=k, reserve=k // 4, graph=method, memory=2**22).fit(X)
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


def test_the_time_of_a_graph_is_of_the_order_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands while others use the machine."""
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=time.process_time))
    n, k, d = 12_000, 50, 128
    rows = estimate._noise(n, d)
    told = estimate.graph_seconds("exact", n, k, d)
    start = time.process_time()
    exact_neighbours(rows, k)
    assert 1 / 6 < told / (time.process_time() - start) < 6


def test_the_time_grows_with_the_square_and_by_nn_descent_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that takes 1 µs a region and 20 ns a pair."""
    monkeypatch.setattr(estimate, "_seconds_to_compare", lambda n, k, d: 1e-6 * n + 2e-8 * n**2)
    exact = estimate.graph_seconds("exact", 100_000, 100, 512)
    assert exact == pytest.approx(1e-6 * 1e5 + 2e-8 * 1e10, rel=1e-6)
    assert estimate.graph_seconds("exact", 1000, 100, 512) == pytest.approx(1e-3 + 2e-2)
    descent = estimate.graph_seconds("nn-descent", 2_000_000, 100, 512)
    assert descent < 0.2 * estimate.graph_seconds("exact", 2_000_000, 100, 512)


def test_a_clock_that_was_disturbed_does_not_make_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    for times in ({2048: 5.0, 6144: 0.1}, {2048: 1e-9, 6144: 90.0}):
        monkeypatch.setattr(estimate, "_seconds_to_compare", lambda n, k, d, times=times: times[n])
        known = expected_seconds("exact", 100_000, 100, 512)
        assert 0.4 * known < estimate.graph_seconds("exact", 100_000, 100, 512) < 300 * known + 500


def test_the_disk_is_counted_with_the_whitening(tmp_path: Path) -> None:
    save_photos(tmp_path / "photos", 6)
    describer = small_describer()
    assert describer.whitening is not None
    made = Index.create(tmp_path / "i.manifind", tmp_path / "photos", describer=describer, k=10)
    found = [Found(f"{i}.png", tmp_path / "photos" / f"{i}.png", 1, 1) for i in range(6)]
    told = [
        estimate.estimate(
            Recipe(tmp_path, one, {"k": 10}, None, None, WhiteningOrigin("none")),
            Plan([], [(one_found, "") for one_found in found], []),
            None,
            timed=False,
        )
        for one in (describer, describer.with_whitening(None))
    ]
    whitening = describer.whitening.mean.nbytes + describer.whitening.project.nbytes
    regions = told[0].regions
    plain = told[1].finished - (regions * 2 + 24) * (describer.whitening.mean.size - describer.dimension)
    assert told[0].finished - plain == pytest.approx(whitening, abs=0)
    assert told[0].finished == pytest.approx(made.info()["bytes"], rel=0.7)


def planned(photos: int, means: int | None = None, *, elsewhere: bool = False, channels: int = 12) -> estimate.Estimate:
    """Return what it takes to make an index of so many photos whose whitening is learnt."""
    recipe = Recipe(
        Path("/photos"),
        Describer(SmallBackbone(channels)),
        {"k": 10},
        means,
        None,
        WhiteningOrigin(LEARNT, 0),
        learning=Learning(dimension=8),
    )
    found = [(Found(f"{i}.png", Path(f"/photos/{i}.png"), 1, 1), "") for i in range(photos)]
    return estimate.estimate(recipe, Plan([], found, []), None, timed=False, elsewhere=elsewhere)


def test_vectors_before_whitening_are_counted_for_all_regions_whatever_means_are_kept() -> None:
    wide, narrow = (planned(100, means=2, channels=channels) for channels in (1000, 12))
    regions = planned(100).regions
    assert wide.regions == 200
    assert (wide.disk - wide.finished) - (narrow.disk - narrow.finished) == 2 * regions * (1000 - 12)


def test_where_workers_make_the_graph_no_room_is_asked_for_vectors_and_lists() -> None:
    few, many = (planned(photos, elsewhere=True) for photos in (10_000, 20_000))
    edges = 10 // 2
    assert (many.memory - few.memory) / (many.regions - few.regions) == pytest.approx(100 + 16 * edges)
    assert many.memory < planned(20_000).memory
    assert many.disk > planned(20_000).disk, "lists lie in files on their way"
