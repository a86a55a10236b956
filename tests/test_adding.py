"""What ``docs/adding.md`` says is all that an addition takes: each is made here, and found at work."""

import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import click
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from sklearn.datasets import load_sample_image

from manifind import Index, Manifold, cli
from manifind.baselines import ImageScorer
from manifind.diffusion import solvers
from manifind.diffusion.solvers import Solver
from manifind.evaluation import methods
from manifind.geometry import KINDS, packing, sift
from manifind.geometry.extraction import Kind
from manifind.geometry.features import Detected, Pixels, Select
from manifind.graph import exact_neighbours, update_neighbours
from manifind.groups import Layout
from manifind.index.storage.local_features import LocalFeatureConfig
from manifind.kernels import Solution, dense_columns
from manifind.kernels.api import BACKENDS
from manifind.ranking import POOLINGS
from manifind.remote.publish import publish
from manifind.remote.row_format import Numbers
from manifind.remote.store import STORES, Address, NearestRows, Row, Versions, store_at
from manifind.types import FloatArray, Vectors
from tests import plain_kernels as plain
from tests.collections_of_regions import Collection
from tests.index.small import small_extractor, small_index
from tests.trivial_backend import ListVectorSet


def test_a_solver_is_one_entry(collection: Collection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def solve(operator: Any, seeds: Any, options: Any, sums: FloatArray | None) -> Solution:
        """The first step of the iteration alone, scaled by what was prepared."""
        y = dense_columns(seeds, operator.size)
        scores = operator.matmul(y) * (1 if sums is None else sums[:, None])
        return Solution(scores, np.ones(len(seeds), np.int32), np.full(len(seeds), np.nan, np.float32))

    one = Solver(
        "one_step",
        "One step.",
        solve,
        lambda operator: np.ones(operator.size, np.float32),
        to_arrays=lambda sums: {"sums": sums},
        from_arrays=lambda _operator, arrays: arrays["sums"],
    )
    monkeypatch.setitem(solvers.SOLVERS, "one_step", one)
    manifold = Manifold(k=5, query_k=5).fit(collection.vectors, collection.image_of).prepare("one_step")
    ranking = manifold.search(collection.queries[0], solver="one_step")
    assert ranking.seed is not None
    y = dense_columns([ranking.seed], collection.n)
    np.testing.assert_allclose(ranking.regions, (manifold.S_ @ y)[:, 0], atol=1e-6)
    assert len(manifold.search(collection.queries[0], solver="one_step", shortlist=3)) == 3
    manifold.save(tmp_path / "saved")
    again = Manifold.load(tmp_path / "saved")
    assert again.is_ready("one_step")
    np.testing.assert_array_equal(again.search(collection.queries[0], solver="one_step").images, ranking.images)


def test_a_pooling_is_one_entry(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(vectors: Vectors, layout: Layout, gmp_lambda: float, *, memory: int = 0) -> FloatArray:
        weights = np.zeros(len(vectors), np.float32)
        weights[layout.starts[:-1]] = 1
        return weights

    monkeypatch.setitem(POOLINGS, "first", first)
    manifold = Manifold(k=5, query_k=5, pooling="first").fit(collection.vectors, collection.image_of)
    ranking = manifold.search(collection.queries[0])
    scores = ranking.regions[manifold.layout_.starts[:-1]]
    np.testing.assert_allclose(np.sort(ranking.scores), np.sort(scores), atol=1e-7)


def test_a_device_is_a_module_and_one_entry(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract test has the rest of it."""
    expected = Manifold(k=5, query_k=5).fit(collection.vectors, collection.image_of).search(collection.queries[0])
    monkeypatch.setitem(BACKENDS, "cpu", "tests.trivial_backend")
    manifold = Manifold(k=5, query_k=5).fit(collection.vectors, collection.image_of)
    assert isinstance(manifold._fitted.rows, ListVectorSet)
    np.testing.assert_array_equal(manifold.search(collection.queries[0]).images, expected.images)


def test_a_vector_set_is_one_class(collection: Collection) -> None:
    rows = ListVectorSet(collection.vectors)
    lists = exact_neighbours(rows, 5)
    np.testing.assert_allclose(lists.similarities, plain.nearest_others(collection.vectors, 5)[1], atol=1e-6)
    fewer = ListVectorSet(collection.vectors[1:])
    origin = np.arange(1, collection.n, dtype=np.int32)
    truth = plain.nearest_others(collection.vectors[1:], 5)[1]
    np.testing.assert_allclose(update_neighbours(lists, fewer, origin, 5).similarities, truth, atol=1e-6)


class DictStore:
    """Keep a collection in dictionaries of this process."""

    documents: ClassVar[dict[str, bytes]] = {}
    rows: ClassVar[dict[int, Row]] = {}

    def __init__(self, address: Address) -> None:
        self.address = address

    def create(self, dimension: int, photos: int) -> None: ...

    def names(self) -> list[str]:
        return list(self.documents)

    def read(self, name: str) -> bytes | None:
        return self.documents.get(name)

    def write(self, name: str, content: bytes) -> None:
        self.documents[name] = content

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.documents.pop(name, None)

    def upsert(self, rows: Sequence[Row]) -> None:
        self.rows.update({row.number: row for row in rows})

    def build_index(self) -> None: ...

    def remove(self, numbers: Numbers) -> None:
        for number in numbers.tolist():
            self.rows.pop(number, None)

    def _versions(self, rows: Iterable[Row]) -> Versions:
        columns = [(row.number, row.photo, row.generation, row.digest) for row in rows]
        return Versions(*np.array(columns, np.int64).reshape(-1, 4).T)

    def versions(self) -> Iterator[Versions]:
        yield self._versions(self.rows.values())

    def nearest(self, queries: FloatArray, count: int, generation: int) -> list[NearestRows]:
        rows = [row for row in self.rows.values() if row.generation <= generation]
        owners = np.repeat(np.arange(len(rows)), [len(row.vectors) for row in rows])
        numbers, photos = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("number", "photo"))
        found = []
        for products in queries @ np.concatenate([row.vectors for row in rows]).T:
            best = np.argsort(-products, kind="stable")[:count]
            found.append(NearestRows(numbers[owners[best]], photos[owners[best]], products[best]))
        return found

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        return [self.rows[number].packed if number in self.rows else None for number in numbers.tolist()]

    def fetch_blobs(self, numbers: Numbers) -> list[bytes | None]:
        return [self.rows[number].blob if number in self.rows else None for number in numbers.tolist()]

    def of_photos(self, photos: Numbers, generation: int) -> Versions:
        wanted = set(photos.tolist())
        return self._versions(row for row in self.rows.values() if row.photo in wanted and row.generation <= generation)

    def close(self) -> None: ...


def test_a_store_is_one_class_and_one_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(STORES, "dict", f"{__name__}:DictStore")
    index = small_index(tmp_path, 12)
    report = publish(index, store_at(Address.parse("dict://here/photos")))
    assert report.added == 12
    opened = Index.open("dict://here/photos", extractor=small_extractor())
    photo = tmp_path / "photos" / "3.png"
    found = opened.search(photo, top=5, verify=0)
    assert [hit.key for hit in found] == [hit.key for hit in index.search(photo, top=5, verify=0)]
    assert opened.info()["photos"] == 12


def test_a_feature_type_is_one_entry_in_two_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def detect(pixels: Pixels, select: Select, low_contrast: bool) -> Detected:
        """SIFT's descriptors, mirrored: they match each other and no others."""
        keypoints, scales, orientations, descriptors = sift.detect(pixels, select, low_contrast)
        return keypoints, scales, orientations, np.ascontiguousarray(descriptors[:, ::-1])

    monkeypatch.setitem(KINDS, "mirrored", Kind(detect, sift.DIMENSION, long_side=512))
    monkeypatch.setitem(packing.QUANTIZATION_LEVELS, "mirrored", packing.QUANTIZATION_LEVELS["sift"])
    monkeypatch.setitem(packing._QUANTIZERS, "mirrored", packing._QUANTIZERS["sift"])
    photo, folder = load_sample_image("china.jpg"), tmp_path / "photos"
    folder.mkdir()
    Image.fromarray(photo[:, :400]).save(folder / "left.png")
    Image.fromarray(photo[:, 200:]).save(folder / "right.png")
    Image.fromarray(load_sample_image("flower.jpg")).save(folder / "other.png")
    index = Index.create(
        tmp_path / "i.manifind",
        folder,
        extractor=small_extractor(),
        local_features=LocalFeatureConfig("mirrored"),
        k=5,
        query_k=5,
    )
    assert index.info()["local_features"]["kind"] == "mirrored"
    again = Index.open(index.path, extractor=small_extractor())
    found = again.search(folder / "left.png", box=(220, 100, 390, 300))
    assert {hit.key for hit in found if hit.verified} == {"left.png", "right.png"}


def test_a_baseline_is_one_class_and_one_entry(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    class LastImage(ImageScorer):
        """Rank images by their number."""

        def _fit(self, collection: Any) -> None:
            self._images = collection.layout.images

        def _score(self, query: Any) -> FloatArray:
            scores: FloatArray = self._images.astype(np.float32)
            return scores

    method = methods.Method("last", "The last image", "regional", "nobody", LastImage)
    monkeypatch.setitem(methods.METHODS, "last", method)
    chosen = methods.parse("last")
    estimator = chosen.method.make(**chosen.parameters).fit(collection.vectors, collection.image_of)
    assert (np.diff(estimator.search(collection.queries[0]).images) < 0).all()


def test_a_command_is_one_file_and_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def shout() -> None:
        """Say it loudly."""
        click.echo("IT")

    module = types.ModuleType("manifind.cli.shout")
    module.shout = shout  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "manifind.cli.shout", module)
    monkeypatch.setitem(cli.COMMANDS, "shout", "Say it loudly.")
    assert "Say it loudly." in CliRunner().invoke(cli.main, ["--help"]).output
    assert CliRunner().invoke(cli.main, ["shout"]).output == "IT\n"


def test_every_file_that_the_page_names_is_there() -> None:
    root = Path(__file__).parent.parent
    words = (root / "docs" / "adding.md").read_text().replace("`", " ").replace("(", " ").replace(")", " ").split()
    named = [word.rstrip(".,:;") for word in words if word.startswith(("src/", "tests/")) and "NAME" not in word]
    assert len(named) > 8
    for name in named:
        assert (root / name).exists(), name
