"""A reader written from docs/formats.md alone, with NumPy and sqlite3, reads an index and ranks as manifind does."""

import re
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind import Index, Manifold
from manifind.demo.synthetic import planted_objects
from manifind.geometry.packing import QUANTIZATION_LEVELS
from manifind.index.storage import manifest
from manifind.index.storage.catalogue import SCHEMA
from manifind.manifold.fitted import TYPES
from tests.docs.blocks import blocks_of
from tests.docs.conftest import inside


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "formats.md").read_text()


@pytest.fixture
def reader(repository: Path, copied: Callable[[], Path]) -> dict[str, Any]:
    """The names that the page's program leaves, run on an index; it may import nothing but what it says."""
    (program,) = [block for block in blocks_of(repository / "docs" / "formats.md") if block.language == "python"]
    imported = set(re.findall(r"^(?:import|from) (\w+)", program.content, re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) == {"numpy"}
    names: dict[str, Any] = {}
    folder = copied()
    with inside(folder):
        exec(compile(program.content, program.name, "exec"), names)  # noqa: S102 (our own page)
    return {**names, "at": folder}


def test_the_reader_ranks_as_the_index_does(reader: dict[str, Any]) -> None:
    index = Index.open(reader["at"] / "photos.manifind")
    parameters = {**reader["manifest"]["fields"]["manifold"], "max_iter": 3000, "tol": 1e-9}
    exact = Manifold.from_arrays(parameters, dict(reader["arrays"]))
    for image in range(0, len(reader["keys"]), 9):
        regions = slice(*reader["arrays"]["starts"][image : image + 2])
        query = reader["arrays"]["vectors"][regions].astype(np.float32)
        images, scores = reader["search"](reader["manifest"], reader["arrays"], query)
        ranking = exact.search(query)
        np.testing.assert_allclose(scores, ranking.scores, rtol=2e-3, atol=1e-7)
        found = [reader["keys"][int(number)] for number in images[:3]]
        answer = index.search(reader["keys"][image], top=3, verify=0)
        assert found == [hit.key for hit in answer]


def test_the_reader_reads_a_saved_manifold(reader: dict[str, Any], tmp_path: Path) -> None:
    photos = planted_objects(60, objects=3, views=10)
    manifold = Manifold(k=20, query_k=10, max_iter=2000, tol=1e-9).fit(photos.vectors, photos.image_of)
    manifold.save(tmp_path / "some.manifold")
    told, arrays = reader["read"](tmp_path / "some.manifold")
    images, scores = reader["search"](told, arrays, photos.queries[0])
    ranking = manifold.search(photos.queries[0], top=10)
    assert images[:10].tolist() == ranking.images.tolist()
    np.testing.assert_allclose(scores[:10], ranking.scores, rtol=1e-4)


def test_damage_does_not_pass_the_reader(reader: dict[str, Any]) -> None:
    folder = reader["at"] / "photos.manifind"
    file = next(folder.glob("S_data-*.npy"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(AssertionError):
        reader["read"](folder)


def test_features_are_unpacked_by_the_words_of_the_page(reader: dict[str, Any], page: str) -> None:
    levels = [float(level) for level in re.findall(r"0\.\d{4}", page)]
    assert tuple(levels) == QUANTIZATION_LEVELS["sift"]
    arrays = reader["arrays"]
    number = int(np.argmax(np.diff(arrays["feature_starts"])))
    rows = arrays["features"][slice(*arrays["feature_starts"][number : number + 2])]
    database = sqlite3.connect(reader["folder"].parent / reader["at"] / "photos.manifind" / _catalogue(reader))
    width, height = database.execute("SELECT width, height FROM images WHERE number = ?", (number,)).fetchone()
    x = (rows[:, 0] + 256.0 * rows[:, 1]) / 65535 * width
    y = (rows[:, 2] + 256.0 * rows[:, 3]) / 65535 * height
    scale = 2.0 ** (rows[:, 4] / 20 - 12) * max(width, height)
    bits = np.stack([(rows[:, 6:] >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(len(rows), 128)
    descriptors = np.array(levels)[bits]
    descriptors /= np.linalg.norm(descriptors, axis=1, keepdims=True)

    from manifind.geometry import unpack

    features = unpack(rows, width, height)
    np.testing.assert_allclose(features.keypoints, np.stack([x, y], axis=1), rtol=1e-5)
    np.testing.assert_allclose(features.scales, scale, rtol=1e-5)
    np.testing.assert_allclose(features.orientations, rows[:, 5] / 256 * 2 * np.pi, rtol=1e-5)
    np.testing.assert_allclose(features.descriptors, descriptors, atol=1e-6)


def _catalogue(reader: dict[str, Any]) -> str:
    return str(reader["manifest"]["files"]["images.sqlite"]["file"])


def test_the_page_names_every_array_field_and_column(reader: dict[str, Any], page: str) -> None:
    for name in (*TYPES, *(file.partition(".")[0] for file in manifest.FILES if file.endswith(".npy"))):
        assert f"`{name}`" in page, name
    for name in reader["manifest"]["fields"]:
        assert f"`{name}`" in page, name
    for name in reader["manifest"]:
        assert f"`{name}`" in page, name
    (tables,) = re.findall(r"^```sql\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    plain = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", tables)).strip()
    assert plain == re.sub(r"\s+", " ", SCHEMA).strip()
    assert f"{manifest.FORMAT} for an index" in page


def test_the_types_of_the_page_are_those_of_the_files(reader: dict[str, Any], page: str) -> None:
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]*) \|", page, re.MULTILINE)
    told = {name: kinds for names, kinds in rows for name in re.findall(r"`(\w+)`", names)}
    for name, array in reader["arrays"].items():
        if not name.startswith("local_"):
            assert str(array.dtype) in told[name], name
