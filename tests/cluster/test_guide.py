"""The guide's commands are those that its demonstration runs."""

import re
from pathlib import Path

from manifind.cluster.milvus import INDEXES, MOST
from manifind.cluster.publishing import DESCRIPTORS
from manifind.cluster.store import STORES


def test_every_command_of_the_guide_is_run_by_the_demonstration(repository: Path) -> None:
    guide = (repository / "docs" / "cluster.md").read_text()
    script = (repository / "scripts" / "cluster-demo").read_text()
    ran = script.replace('"$address"', "milvus://127.0.0.1:19530/photos").replace('"$query"', "IMAGE")
    ran = ran.replace('"$root/scripts/milvus" "$folder/milvus"', "scripts/milvus FOLDER")
    commands = [
        line for block in re.findall(r"^```sh cluster\n(.*?)^```$", guide, re.M | re.S) for line in block.split("\n")
    ]
    commands = [command for command in commands if command]
    assert len(commands) >= 8
    for command in commands:
        assert command in ran, command


def test_the_guide_names_every_store_index_and_limit(repository: Path) -> None:
    guide = (repository / "docs" / "cluster.md").read_text()
    for scheme in STORES:
        assert f"`{scheme}://" in guide
    for kind in INDEXES:
        assert f"`{kind}`" in guide or f"={kind}`" in guide
    assert f"{MOST:,} rows" in guide
    assert f"**{DESCRIPTORS} means; {DESCRIPTORS} of the query**" in guide
