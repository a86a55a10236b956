"""The guide's commands are those that its demonstration runs."""

import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from manifind.index import Index
from manifind.remote.milvus import INDEXES
from manifind.remote.milvus_requests import MAX_QUERY_ROWS
from manifind.remote.publish import DEFAULT_DESCRIPTORS
from manifind.remote.store import STORES
from tests.distributed.ports import PATIENCE


def test_every_command_of_the_guide_is_run_by_the_demonstration(repository: Path) -> None:
    guide = (repository / "docs" / "cluster.md").read_text()
    script = (repository / "scripts" / "cluster-demo").read_text()
    meant = {
        '"$address"': "milvus://127.0.0.1:19530/photos",
        '"$query"': "IMAGE",
        '"$root/scripts/milvus" "$folder/milvus"': "scripts/milvus FOLDER",
        "$scheduler": "8786",
        "$milvus": "19530",
        "$page": "8901",
    }
    ran = script
    for name, value in meant.items():
        ran = ran.replace(name, value)
    blocks = re.findall(r"^```sh cluster\n(.*?)^```$", guide, re.M | re.S)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) >= 8
    for command in commands:
        assert command in ran, command


@pytest.mark.slow
def test_the_demonstration_runs_from_start_to_end(repository: Path, tmp_path: Path) -> None:
    if not (repository / ".venv" / "installed").exists():
        pytest.skip("scripts/environment has not made .venv, which the demonstration runs in")
    script, folder = repository / "scripts" / "cluster-demo", tmp_path / "demonstration"
    with (
        (tmp_path / "told").open("wb") as out,
        subprocess.Popen(  # noqa: S603
            [script, "--small", folder], stdout=out, stderr=out, start_new_session=True
        ) as running,
    ):
        try:
            running.wait(10 * PATIENCE)
        finally:
            if running.poll() is None:  # it ends what it started when it is told to end
                os.killpg(running.pid, signal.SIGTERM)
                running.wait(PATIENCE)
    told = (tmp_path / "told").read_text()
    assert running.returncode == 0, told
    assert "8 photos added" in told
    assert "serves 8 photos of generation 1" in told
    with Index.open(folder / "photos.manifind") as index:
        assert len(index) == 8
    started = [one for one in psutil.process_iter(["cwd"]) if one.info["cwd"] == str(folder)]
    _, left = psutil.wait_procs(started, timeout=PATIENCE)
    assert not left, "nothing that it started is left"


def test_the_guide_names_every_store_index_and_limit(repository: Path) -> None:
    guide = (repository / "docs" / "cluster.md").read_text()
    for scheme in STORES:
        assert f"`{scheme}://" in guide
    for kind in INDEXES:
        assert f"`{kind}`" in guide or f"={kind}`" in guide
    assert f"{MAX_QUERY_ROWS:,} rows" in guide
    assert f"**{DEFAULT_DESCRIPTORS} means; {DEFAULT_DESCRIPTORS} of the query**" in guide
