"""Dask's workers make the same index as one process does, whatever happens to them."""

import os
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from manifind import Manifold, kernels
from manifind.cli import main
from manifind.distributed import block_design as planes
from manifind.distributed import exchange, mutual_graph, tasks
from manifind.distributed import knn_builder as rows
from manifind.distributed import workers as module
from manifind.distributed.exchange import ArrayFile, ExchangeDir
from manifind.distributed.workers import DaskWorkers, workers
from manifind.errors import ManifindError
from manifind.features import RegionExtractor, load_extractor
from manifind.features.backbone import DEFAULT
from manifind.graph import exact_neighbours, neighbours, nn_descent_neighbours
from manifind.index import Index
from manifind.index.build import build, learning
from manifind.index.build import merge as assembling
from manifind.index.build.plan import plan_folder
from manifind.index.storage import snapshot as chance
from manifind.index.storage.build_config import BuildConfig, WhiteningTraining
from manifind.index.storage.manifest import FILES, KIND, LEARNT, WhiteningOrigin
from manifind.index.storage.snapshot import Snapshot
from manifind.manifold import building
from manifind.remote.store import StoreUnavailableError
from manifind.storage import store
from tests.distributed import s3_server
from tests.distributed.conftest import save_photo
from tests.distributed.dask_cluster import REPOSITORY, DaskCluster
from tests.distributed.ports import PATIENCE, free_port
from tests.distributed.s3_server import Server
from tests.index.small import SmallBackbone

S3_PORT = free_port()


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """The cluster of all tests. Its workers know where a server of S3 may come to be."""
    with DaskCluster(tmp_path_factory.mktemp("dask"), s3_server.environment(S3_PORT)) as running:
        yield running


@pytest.fixture
def cluster(dask: DaskCluster) -> Iterator[DaskCluster]:
    yield dask
    dask.replace_killed_workers()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with s3_server.running(S3_PORT, tmp_path_factory.mktemp("s3") / "log") as server:
        yield server


@pytest.fixture
def by(cluster: DaskCluster) -> Iterator[DaskWorkers]:
    with closing(workers(cluster.address, seconds=PATIENCE)) as running:
        yield running


def arrays(index: Index) -> dict[str, np.ndarray]:
    return {**index.manifold.to_arrays()[1], "boxes": index.boxes}


def vectors(n: int, d: int = 24) -> np.ndarray:
    rng = np.random.default_rng(3)
    made = rng.standard_normal((n, d)).astype(np.float32)
    if n > 204:
        made[50:90] = made[50]  # more equals than a list is long
        made[200:204] = made[7]
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("regions_per_image", [None, 3])
def test_an_index_by_workers_is_that_of_one_process(
    cluster: DaskCluster, photos: Path, extractor: RegionExtractor, tmp_path: Path, regions_per_image: int | None
) -> None:
    (photos / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    given = {"extractor": extractor, "k": 20, "query_k": 20, "regions_per_image": regions_per_image}
    here = Index.create(tmp_path / "here.manifind", photos, **given)  # type: ignore[arg-type]
    there = Index.create(tmp_path / "there.manifind", photos, **given, client=cluster.address)  # type: ignore[arg-type]
    assert there.catalogue.images == here.catalogue.images
    assert there.catalogue.skipped == here.catalogue.skipped
    assert there.manifold.graph_ == here.manifold.graph_
    for name, array in arrays(here).items():
        np.testing.assert_array_equal(arrays(there)[name], array, err_msg=name)


def test_a_extractor_travels_by_its_name_and_its_whitening_lies_in_a_file(tmp_path: Path) -> None:
    made = load_extractor(DEFAULT, long_side=320)
    assert made.whitening is not None
    sent = pickle.dumps(tasks.ExtractorSpec(made, DEFAULT, 1, ExchangeDir(str(tmp_path))))
    assert len(sent) < 2000
    assert pickle.loads(sent).extractor().fingerprint() == made.fingerprint()  # noqa: S301 (our own)


def learnt(
    path: Path,
    photos: Path,
    by: DaskWorkers | None,
    regions_per_image: int | None = None,
    channels: int = 12,
    dimension: int = 8,
) -> Snapshot:
    """Make an index whose whitening is learnt."""
    asked, teach = {"k": 20, "query_k": 20}, WhiteningTraining(dimension=dimension)
    bare = RegionExtractor(SmallBackbone(channels))
    config = BuildConfig(photos, bare, asked, regions_per_image, None, WhiteningOrigin(LEARNT, 0), learning=teach)
    path.mkdir()
    with store.writing(path, KIND, FILES) as writer:
        build.build(writer, config, plan_folder(photos), workers=by)
    return Snapshot.read(path)


@pytest.mark.parametrize("regions_per_image", [None, 3])
@pytest.mark.parametrize("where", ["folder", "store"])
def test_a_whitening_that_workers_learn_is_that_of_one_process_and_the_driver_whitens_nothing(
    cluster: DaskCluster,
    photos: Path,
    tmp_path: Path,
    regions_per_image: int | None,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "PART", 200)
    monkeypatch.setattr(learning, "PHOTOS", 3)
    monkeypatch.setattr(module, "MAX_SUBMITTED_TASKS", 3)
    here = learnt(tmp_path / "here.manifind", photos, None, regions_per_image)
    monkeypatch.setattr(learning, "whitened", lambda *_: pytest.fail("the driver whitens"))
    monkeypatch.setattr("manifind.features.moments.Sums.of", lambda *_: pytest.fail("the driver adds up"))
    shards = f"file://{tmp_path}/bucket" if where == "store" else None
    with closing(workers(cluster.address, shards=shards)) as by:
        there = learnt(tmp_path / "there.manifind", photos, by, regions_per_image)
    assert there.whitening is not None
    assert here.whitening is not None
    np.testing.assert_array_equal(there.whitening.project, here.whitening.project)
    np.testing.assert_array_equal(there.boxes, here.boxes)
    for name, array in here.manifold.to_arrays()[1].items():
        np.testing.assert_array_equal(there.manifold.to_arrays()[1][name], array, err_msg=name)
    assert where == "folder" or list((tmp_path / "bucket").iterdir()) == []


def test_what_the_driver_holds_does_not_grow_with_the_vectors(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes at a time is small here, so that what it holds would show; arrays in files do not count."""
    for room, name, few in (
        (learning, "ROWS", 256),
        (learning, "SAMPLE", 100),
        (learning, "PHOTOS", 8),
        (build, "ROWS", 256),
        (assembling, "ROWS", 256),
        (assembling, "PHOTOS", 16),
        (exchange, "ROWS_PER_READ", 256),
        (chance, "NULL_BLOCK", 64),
        (rows, "MAX_LOCAL_GRAPH_BYTES", 0),
    ):
        monkeypatch.setattr(room, name, few)
    held: dict[int, int] = {}
    with closing(workers(cluster.address)) as by:
        for count in (40, 160):
            for number in range(count):
                save_photo(tmp_path / f"{count}" / f"{number}.png", number)
            tracemalloc.start()
            made = learnt(tmp_path / f"{count}.manifind", tmp_path / f"{count}", by, channels=512, dimension=512)
            held[made.regions] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    (few, less), (many, more) = held.items()
    assert many - few > 2000
    assert (more - less) / (many - few) < 128, "bytes a region, of which one vector in half precision has 1,024"


def test_an_index_that_workers_bring_up_to_date_is_that_of_one_process_and_the_driver_holds_no_vectors(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extractor = RegionExtractor(SmallBackbone(512))
    held: dict[int, int] = {}
    for count in (20, 80):
        folder = tmp_path / f"{count}"
        for number in range(count):
            save_photo(folder / f"{number}.png", number)
        given = {"extractor": extractor, "local_features": False, "k": 20, "query_k": 20}
        here, there = (Index.create(tmp_path / f"{count}-{who}.manifind", folder, **given) for who in "ab")  # type: ignore[arg-type]
        for number in range(count // 10):
            save_photo(folder / f"new-{number}.png", 1000 + number)
        here.sync()
        with monkeypatch.context() as small, closing(workers(cluster.address)) as by:
            small.setattr(by, "memory", lambda: 2**22)
            small.setattr(rows, "MAX_LOCAL_GRAPH_BYTES", 0)
            small.setattr(rows.BlockwiseVectorSet, "search", lambda *_, **__: pytest.fail("the driver searches"))
            for room, name, few in (
                (assembling, "ROWS", 256),
                (assembling, "PHOTOS", 16),
                (building, "IMAGES_AT_A_TIME", 1),
                (exchange, "ROWS_PER_READ", 256),
                (chance, "NULL_BLOCK", 64),
                (neighbours, "JOIN_BLOCK_ROWS", 256),
            ):
                small.setattr(room, name, few)
            tracemalloc.start()
            there.sync(client=by)
            held[len(there.boxes)] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        its = arrays(here)
        for name, array in arrays(there).items():
            if name in ("neighbour_similarities", "S_data", "degrees"):  # new products are rounded by other blocks
                np.testing.assert_allclose(array, its[name], atol=1e-5, err_msg=name)
            else:
                np.testing.assert_array_equal(array, its[name], err_msg=name)
        assert list((tmp_path / f"{count}-b.manifind").rglob("following-*")) == []
    (few, less), (many, more) = held.items()
    assert many - few > 1000
    assert (more - less) / (many - few) < 256, "bytes a region, of which one vector in half precision has 1,024"


@pytest.mark.parametrize("where", ["file://{}/elsewhere", "elsewhere"])
def test_an_index_whose_files_are_exchanged_elsewhere_is_the_same_and_leaves_nothing_there(
    cluster: DaskCluster,
    photos: Path,
    extractor: RegionExtractor,
    tmp_path: Path,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rows, "MAX_LOCAL_GRAPH_BYTES", 0)
    monkeypatch.setattr(planes, "ORDERS", (2,))
    given = {"extractor": extractor, "k": 20, "query_k": 20}
    here = Index.create(tmp_path / "here.manifind", photos, **given)  # type: ignore[arg-type]
    exchanged: list[str] = []
    write = ExchangeDir.write

    def noted(self: ExchangeDir, name: str, chunks: list[bytes]) -> None:
        exchanged.append(self.where)
        write(self, name, chunks)

    monkeypatch.setattr(ExchangeDir, "write", noted)
    with closing(workers(cluster.address, shards=where.format(tmp_path))) as by:
        there = Index.create(tmp_path / "there.manifind", photos, **given, client=by)  # type: ignore[arg-type]
    for name, array in arrays(here).items():
        np.testing.assert_array_equal(arrays(there)[name], array, err_msg=name)
    assert len(exchanged) == 3, "vectors and lists were brought there"
    assert all(f"{tmp_path}/elsewhere" in where for where in exchanged)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("order", [0, 1, 2])
def test_lists_of_tiles_are_those_of_all_pairs_to_the_bit_duplicates_and_all(
    by: DaskWorkers, tmp_path: Path, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planes, "ORDERS", (order,))
    X = vectors(900)
    X.tofile(tmp_path / "all.f32")
    found = exact_neighbours(by.knn_builder(X, tmp_path / "all.f32"), 30, reserve=5)
    right = exact_neighbours(X, 30, reserve=5)
    np.testing.assert_array_equal(found.ids, right.ids)
    np.testing.assert_array_equal(found.similarities, right.similarities)


@pytest.mark.parametrize("n", [900, 13])
def test_the_affinity_of_tasks_is_that_of_one_process_to_the_bit_duplicates_and_all(
    by: DaskWorkers, tmp_path: Path, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_LOCAL_GRAPH_BYTES", 0)
    X = vectors(n)
    X.tofile(tmp_path / "all.f32")
    here = Manifold(k=10, reserve=3).fit(X)
    there = Manifold(k=10, reserve=3).fit(X, builder=by.knn_builder(X, tmp_path / "all.f32"))
    for mine, its in zip(
        (there.S_.indptr, there.S_.indices, there.S_.data, there.degrees_),
        (here.S_.indptr, here.S_.indices, here.S_.data, here.degrees_),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, its)
    assert len(list(tmp_path.glob("tiles-*/joined-*/joined-*"))) >= 2


def test_a_driver_that_dies_while_lists_are_joined_goes_on_with_the_blocks_that_are_done(
    cluster: DaskCluster, by: DaskWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_LOCAL_GRAPH_BYTES", 0)
    monkeypatch.setattr(rows, "PAIR_BYTES", 2**18)  # so that there are five blocks
    X = vectors(900)
    X.tofile(tmp_path / "all.f32")
    run, handed_out = DaskWorkers.run, Counter[str]()

    class Killed(Exception):
        pass

    def dying(self: DaskWorkers, calls: list[tuple[Any, ...]]) -> Iterator[int]:
        for place in run(self, calls):
            yield place
            if calls[0][0] is mutual_graph.intersect_block:
                raise Killed

    monkeypatch.setattr(DaskWorkers, "run", dying)
    with pytest.raises(Killed):
        Manifold(k=10).fit(X, builder=by.knn_builder(X, tmp_path / "all.f32"))

    def counting(self: DaskWorkers, calls: list[tuple[Any, ...]]) -> Iterator[int]:
        handed_out.update(call[0].__name__ for call in calls)
        return run(self, calls)

    monkeypatch.setattr(DaskWorkers, "run", counting)
    monkeypatch.setattr(rows, "PAIR_BYTES", 2**17)  # what was begun goes on as it was begun
    cluster.until_idle()  # what its workers had begun is finished
    for part in (1, 3):  # what they might not have come to
        (one,) = tmp_path.glob("tiles-*/joined-*-5")
        (one / f"joined-{part}.npy").unlink(missing_ok=True)
    finished = len(list(tmp_path.glob("tiles-*/joined-*/joined-*.npy")))
    there = Manifold(k=10).fit(X, builder=by.knn_builder(X, tmp_path / "all.f32"))
    assert handed_out == {"intersect_block": 5 - finished}, "neither a tile nor a transposed list is made again"
    assert finished >= 1
    np.testing.assert_array_equal(there.S_.data, Manifold(k=10).fit(X).S_.data)


def test_nn_descent_by_a_worker_finds_what_it_finds_here_and_is_not_done_again(
    by: DaskWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels.compiled():
        pytest.skip("NN-Descent is in the compiled core, which is not there")
    X = vectors(900)
    X.tofile(tmp_path / "all.f32")
    found = nn_descent_neighbours(by.knn_builder(X, tmp_path / "all.f32"), 12)
    right = nn_descent_neighbours(X, 12)
    np.testing.assert_array_equal(found.ids, right.ids)
    np.testing.assert_array_equal(found.similarities, right.similarities)
    assert list(tmp_path.glob("descent-*/lists.npy"))
    monkeypatch.setattr(DaskWorkers, "run", lambda *_: pytest.fail("it is there"))
    again = nn_descent_neighbours(by.knn_builder(X, tmp_path / "all.f32"), 12)
    np.testing.assert_array_equal(again.ids, right.ids)


def changed(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Most of some vectors and some new ones, among them two that others are equal to; and where each was."""
    rng = np.random.default_rng(5)
    kept = np.flatnonzero(rng.random(len(X)) > 0.1)
    new = np.concatenate([vectors(2000, X.shape[1])[900:990], X[50:51], X[7:8]])
    origin = np.concatenate([kept, np.full(len(new), -1)])
    order = rng.permutation(len(origin))
    return np.concatenate([X[kept], new])[order], origin[order].astype(np.int32)


@pytest.mark.parametrize("where", ["folder", "store"])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_lists_that_follow_a_change_by_tasks_are_those_of_one_process(
    cluster: DaskCluster, tmp_path: Path, where: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_LOCAL_GRAPH_BYTES", 0)
    before: np.ndarray = vectors(900).astype(kind)
    snapshot, origin = changed(before)
    right = Manifold(k=10, reserve=3).fit(before).update(snapshot, np.arange(len(snapshot)), origin)
    there = Manifold(k=10, reserve=3).fit(before)
    (tmp_path / "own").mkdir()
    snapshot.tofile(tmp_path / "own" / "all")
    shards = f"file://{tmp_path}/bucket" if where == "store" else None
    with closing(workers(cluster.address, shards=shards)) as by:
        by.memory = lambda: 100_000  # type: ignore[method-assign] # several blocks, and one newcomer at a time
        told: list[tuple[int, int]] = []
        looked = by.knn_builder(snapshot, tmp_path / "own" / "all")
        monkeypatch.setattr(type(looked.vectors), "search", lambda *_, **__: pytest.fail("the driver searches"))
        there.update(
            snapshot, np.arange(len(snapshot)), origin, builder=looked, progress=lambda *done: told.append(done)
        )
        assert isinstance(there._fitted.lists.ids, np.memmap)
        mine, its = there.neighbours_, right.neighbours_
        np.testing.assert_allclose(mine.similarities, its.similarities, atol=1e-6)
        near = np.diff(its.similarities, axis=1, prepend=2, append=-2) > -1e-6  # equals are rounded one way or another
        told_apart = ~(near[:, 1:] | near[:, :-1])
        np.testing.assert_array_equal(mine.ids[told_apart], its.ids[told_apart])
        assert told_apart.mean() > 0.9
    assert told[-1] == (len(snapshot), len(snapshot))
    assert len(told) > 5


def test_a_driver_that_dies_while_lists_follow_a_change_goes_on_with_the_tasks_that_are_done(
    cluster: DaskCluster, by: DaskWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = vectors(900)
    snapshot, origin = changed(before)
    snapshot.tofile(tmp_path / "all.f32")
    images = np.arange(len(snapshot))
    monkeypatch.setattr(by, "memory", lambda: 100_000)

    class Killed(Exception):
        pass

    def until(*_: int) -> None:
        if list(tmp_path.glob("following-*/entered-*.npy")):
            raise Killed

    there, looked = Manifold(k=10).fit(before), by.knn_builder(snapshot, tmp_path / "all.f32")
    with pytest.raises(Killed):
        there.update(snapshot, images, origin, builder=looked, progress=until)
    cluster.until_idle()  # what its workers had begun is finished
    (begun,) = tmp_path.glob("following-*")
    max(begun.glob("entered-*.npy"), key=lambda file: file.name).unlink()  # what they might not have come to
    finished = {file.name for file in begun.glob("*-*.npy")}
    run, handed_out = DaskWorkers.run, list[str]()

    def counting(self: DaskWorkers, calls: list[tuple[Any, ...]]) -> Iterator[int]:
        handed_out.extend(call[-1] for call in calls)
        return run(self, calls)

    monkeypatch.setattr(DaskWorkers, "run", counting)
    monkeypatch.setattr(by, "memory", lambda: 200_000)  # what was begun goes on as it was begun
    there.update(snapshot, images, origin, builder=by.knn_builder(snapshot, tmp_path / "all.f32"))
    assert handed_out
    assert not finished & set(handed_out)
    right = Manifold(k=10).fit(before).update(snapshot, images, origin)
    np.testing.assert_array_equal(there.neighbours_.ids, right.neighbours_.ids)


def test_rows_too_many_to_hold_are_searched_some_at_a_time(
    by: DaskWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = vectors(900)[100:]
    X.tofile(tmp_path / "all.f32")
    queries = X[:3] + np.float32(0.1) * X[3:6]
    expected = by.knn_builder(X, tmp_path / "all.f32").vectors.search(queries, 20)
    monkeypatch.setattr(rows, "MAX_IN_MEMORY_NUMBERS", 24 * 15)  # fewer rows at a time than are asked for
    for found, right in zip(by.knn_builder(X, tmp_path / "all.f32").vectors.search(queries, 20), expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_no_task_holds_more_than_its_blocks(tmp_path: Path) -> None:
    X = vectors(700)
    X.tofile(tmp_path / "all.f32")
    spans = [(0, 100), (300, 400)]
    shards = ExchangeDir(str(tmp_path))
    tasks.find_neighbours(ArrayFile(shards, "all.f32", "<f4", (700, 24)), spans, 10, 1, shards, "tile.npy")
    ids, _ = tasks.read_lists(shards, "tile.npy")
    assert ids.shape == (200, 10)
    assert set(np.unique(ids)) <= {*range(100), *range(300, 400)}


DRIVER = """
import sys
from pathlib import Path
import numpy as np
from manifind.distributed import block_design as planes
from manifind.distributed.workers import workers
from manifind.graph import exact_neighbours
from tests.distributed.slow_tasks import slowly

address, folder, begins = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "begins"
if begins:
    slowly(folder, most=4)
planes.ORDERS = (2,) if begins else (3,)  # what was begun goes on as it was begun
X = np.fromfile(folder / "all.f32", np.float32).reshape(-1, 24)
rows = workers(address).knn_builder(X, folder / "all.f32")
lists = exact_neighbours(rows, 30, progress=lambda *done: print(*done, flush=True))
np.save(folder / "ids.npy", lists.ids)
"""


@contextmanager
def drive(cluster: DaskCluster, folder: Path, how: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-c", DRIVER, cluster.address, str(folder), how]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as driver:  # noqa: S603
        try:
            yield driver
        finally:
            driver.kill()


def wait_for_tiles(folder: Path, count: int) -> list[Path]:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        tiles = sorted(folder.glob("tiles-*/tile-*.npy"))
        if len(tiles) >= count:
            return tiles
        time.sleep(0.05)
    raise AssertionError("the tiles do not come")


@pytest.mark.slow
def test_workers_and_then_the_driver_are_killed_and_nothing_finished_is_done_again(
    cluster: DaskCluster, tmp_path: Path
) -> None:
    X = vectors(900)
    X.tofile(tmp_path / "all.f32")
    with drive(cluster, tmp_path, "begins") as driver:
        wait_for_tiles(tmp_path, 1)
        cluster.kill(0)
        cluster.replace_killed_workers()
        wait_for_tiles(tmp_path, 3)
        cluster.kill(1)
        wait_for_tiles(tmp_path, 4)
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
    cluster.until_nothing_is_handed_out()
    (tmp_path / "go-on").touch()
    cluster.until_idle()  # what its workers had begun is finished
    finished = sorted(tmp_path.glob("tiles-*/tile-*.npy"))
    assert 4 <= len(finished) < 7
    times = {tile: tile.stat().st_mtime_ns for tile in finished}
    with drive(cluster, tmp_path, "goes on") as again:
        told, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0
    assert {tile: tile.stat().st_mtime_ns for tile in finished} == times
    tasks_left = 14 - len(finished)
    assert len(told.splitlines()) == tasks_left, "a finished tile is no task"
    np.testing.assert_array_equal(np.load(tmp_path / "ids.npy"), exact_neighbours(X, 30).ids)


def test_a_scheduler_that_is_not_there_is_named_in_a_sentence() -> None:
    with pytest.raises(ManifindError, match="no scheduler of Dask answers at tcp:"):
        workers("tcp://127.0.0.1:9", seconds=1)


def test_the_cores_of_a_machine_are_shared_by_its_workers(by: DaskWorkers) -> None:
    cores = os.cpu_count() or 1
    assert by.machines() == {"127.0.0.2": 1, "127.0.0.3": 1}
    assert by.threads(5) == [cores] * 5, "each has a machine of its own"
    by.machines = lambda: Counter({"a": 2})  # type: ignore[method-assign]
    assert by.threads(3) == [max(1, cores // 2)] * 2 + [cores], "the last is alone on the machine"
    assert by.memory() == int(0.25 * 2 * 2**30)


def test_a_folder_for_workers_without_a_scheduler_is_refused(photos: Path) -> None:
    told = CliRunner().invoke(main, ["index", str(photos), "--shards", "s3://bucket/folder"])
    assert told.exit_code == 2
    assert "--scheduler" in told.stderr


def test_an_object_store_that_fsspec_does_not_know_is_named_in_a_sentence() -> None:
    with pytest.raises(ManifindError, match="nowhere://bucket/folder cannot be reached"):
        ExchangeDir("nowhere://bucket/folder").exists("a")


def test_an_object_store_that_does_not_answer_is_named_in_a_sentence() -> None:
    with pytest.raises(
        StoreUnavailableError, match=r"^ftp://127.0.0.1:9/folder did not answer \(.*refused\); see that it is"
    ):
        ExchangeDir("ftp://127.0.0.1:9/folder").exists("a")


# -- through an object store -------------------------------------------------------------------------------------------

BUCKET = "s3://bucket/folder"

S3_DRIVER = """
import sys
from pathlib import Path
import numpy as np
from manifind.distributed import block_design as planes
from manifind.distributed.workers import workers
from manifind.graph import exact_neighbours
from tests.distributed.slow_tasks import slowly

slowly(Path(sys.argv[2]), most=100)
planes.ORDERS = (2,)
file = Path(sys.argv[2]) / "all.f32"
X = np.fromfile(file, np.float32).reshape(-1, 24)
lists = exact_neighbours(workers(sys.argv[1], shards=sys.argv[3]).knn_builder(X, file), 30)
np.save(file.with_name("ids.npy"), lists.ids)
"""


@pytest.mark.slow
def test_an_index_through_s3_is_that_of_one_process_and_leaves_nothing_there(
    s3: Server, cluster: DaskCluster, tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    for number in range(8):
        save_photo(photos / f"{number}.png", number)
    command = [sys.executable, "-m", "manifind.cli", "index", str(photos), "-o", str(tmp_path / "there.manifind")]
    command += [
        "--json",
        "--regions-per-image",
        "5",
        "--scales",
        "1",
        "--long-side",
        "128",
        "--scheduler",
        cluster.address,
        "--shards",
        BUCKET,
    ]
    subprocess.run(  # noqa: S603
        command, env=cluster.environment, stdout=subprocess.DEVNULL, check=True, timeout=2 * PATIENCE
    )
    seen = s3.written()
    assert any("described" in name for name in seen)
    assert any("vectors.f16" in name for name in seen), "what photos teach is added up by workers"
    assert any("tile" in name for name in seen)
    assert s3.names() == []
    here = Index.create(tmp_path / "here.manifind", photos, regions_per_image=5, scales=(1.0,), long_side=128)
    there = Index.open(tmp_path / "there.manifind")
    for name, array in here.manifold.to_arrays()[1].items():
        np.testing.assert_array_equal(there.manifold.to_arrays()[1][name], array, err_msg=name)


@pytest.mark.slow
def test_a_worker_killed_while_tiles_come_to_s3_costs_nothing_but_its_task(
    s3: Server, cluster: DaskCluster, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((900, 24)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X.tofile(tmp_path / "all.f32")
    command = [sys.executable, "-c", S3_DRIVER, cluster.address, str(tmp_path), f"{BUCKET}/killed"]
    with subprocess.Popen(command, env=cluster.environment) as driver:  # noqa: S603
        try:
            until = time.monotonic() + PATIENCE
            while not any("/tile-" in name for name in s3.names()):
                assert time.monotonic() < until, "the tiles do not come"
                time.sleep(0.02)
            cluster.kill(0)
            assert driver.wait(timeout=PATIENCE) == 0
        finally:
            driver.kill()
    np.testing.assert_array_equal(np.load(tmp_path / "ids.npy"), exact_neighbours(X, 30).ids)
