"""Workers and their driver exchange files through an object store: a server of S3, which other processes reach."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from manifind.graph import exact_neighbours
from manifind.index import Index
from tests.distributed.conftest import save_photo
from tests.distributed.dask_cluster import REPOSITORY, DaskCluster
from tests.distributed.ports import PATIENCE, free_port, wait_for

BUCKET = "s3://bucket/folder"

DRIVER = """
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


class Server:
    """A server of S3."""

    def __init__(self, port: int, log: Path) -> None:
        self.log = log
        self.address = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "anybody",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_DEFAULT_REGION": "us-east-1",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / ".venv" / "s3"), str(REPOSITORY)]),
        }

    def names(self) -> list[str]:
        """Return the names of all files of the bucket."""
        try:
            with urllib.request.urlopen(f"{self.address}/bucket?list-type=2") as told:  # noqa: S310
                return re.findall(r"<Key>(.*?)</Key>", told.read().decode())
        except urllib.error.HTTPError:  # there is no bucket yet
            return []

    def written(self) -> list[str]:
        """Return the names of all files that were ever written."""
        return re.findall(r'"PUT /bucket/(\S+) HTTP', self.log.read_text())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if Path(sys.prefix) != REPOSITORY / ".venv":
        pytest.skip("tests do not run in the .venv of the repository, beside which scripts/s3 installs a server of S3")
    script = REPOSITORY / "scripts" / "s3"
    installed = subprocess.run([script, "--install"], capture_output=True, text=True, check=False)  # noqa: S603
    if installed.returncode:
        pytest.skip(f"a server of S3 cannot be installed here: {installed.stderr.splitlines()[-1]}")
    port, log = free_port(), tmp_path_factory.mktemp("s3") / "log"
    with log.open("wb") as stream, subprocess.Popen([script, str(port)], stdout=stream, stderr=stream) as running:  # noqa: S603
        try:
            wait_for(port, running, log)
            yield Server(port, log)
        finally:
            running.kill()


@pytest.fixture(scope="module")
def cluster(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with DaskCluster(tmp_path_factory.mktemp("dask"), server.environment) as running:
        yield running


@pytest.mark.slow
def test_an_index_through_s3_is_that_of_one_process_and_leaves_nothing_there(
    server: Server, cluster: DaskCluster, tmp_path: Path
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
    seen = server.written()
    assert any("described" in name for name in seen)
    assert any("vectors.f16" in name for name in seen), "what photos teach is added up by workers"
    assert any("tile" in name for name in seen)
    assert server.names() == []
    here = Index.create(tmp_path / "here.manifind", photos, regions_per_image=5, scales=(1.0,), long_side=128)
    there = Index.open(tmp_path / "there.manifind")
    for name, array in here.manifold.to_arrays()[1].items():
        np.testing.assert_array_equal(there.manifold.to_arrays()[1][name], array, err_msg=name)


@pytest.mark.slow
def test_a_worker_killed_while_tiles_come_to_s3_costs_nothing_but_its_task(
    server: Server, cluster: DaskCluster, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((900, 24)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X.tofile(tmp_path / "all.f32")
    command = [sys.executable, "-c", DRIVER, cluster.address, str(tmp_path), f"{BUCKET}/killed"]
    with subprocess.Popen(command, env=cluster.environment) as driver:  # noqa: S603
        try:
            until = time.monotonic() + PATIENCE
            while not any("/tile-" in name for name in server.names()):
                assert time.monotonic() < until, "the tiles do not come"
                time.sleep(0.02)
            cluster.workers[0].send_signal(signal.SIGKILL)
            assert driver.wait(timeout=PATIENCE) == 0
        finally:
            driver.kill()
    np.testing.assert_array_equal(np.load(tmp_path / "ids.npy"), exact_neighbours(X, 30).ids)
