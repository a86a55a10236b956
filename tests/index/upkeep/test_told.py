"""What an index holds, what is said of its graph, and what it takes to make and to open it."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manifind import InvalidInputError
from manifind.errors import DiskFullError
from manifind.graph import KnnReport
from manifind.index import Estimate, Index
from manifind.index.build import estimate
from manifind.index.maintenance.info import health
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import Catalogue, ImageRecord
from manifind.index.storage.local_features import LOCAL_FEATURES
from manifind.index.storage.manifest import FORMAT, KIND, WhiteningOrigin
from manifind.index.storage.snapshot import CATALOGUE
from manifind.manifold import Manifold
from manifind.storage import store
from tests.collections_of_regions import unit
from tests.errors import raises
from tests.index.small import save_photo, small_extractor
from tests.index.upkeep.fresh import PARAMETERS, Counting, assert_as_fresh


def test_means_stand_for_the_regions_of_a_photo(folder: Path, tmp_path: Path, extractor: Counting) -> None:
    whole = Index.create(tmp_path / "whole.manifind", folder, extractor=extractor, **PARAMETERS)
    few = Index.create(tmp_path / "few.manifind", folder, extractor=extractor, regions_per_image=5, **PARAMETERS)
    assert len(few.boxes) <= 5 * 8 < len(whole.boxes)
    assert few.info()["regions_per_image"] == 5
    known = {tuple(box) for box in whole.boxes.tolist()}
    assert all(tuple(box) in known for box in few.boxes.tolist())
    save_photo(folder / "more.png", 13)
    few.add([folder / "more.png"])
    fresh = Index.create(tmp_path / "fresh.manifind", folder, extractor=extractor, regions_per_image=5, **PARAMETERS)
    assert_as_fresh(few, fresh)
    assert len(few.search("3.png", top=None)) == 9
    assert few.check() == []


def test_what_is_said_of_the_graph_follows_it(
    folder: Path, tmp_path: Path, extractor: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if it had been found by descent: what was measured then is carried along, not measured or made up anew.
    rough = KnnReport("nn-descent", 0.99, 0.75, 300)
    monkeypatch.setattr("manifind.manifold.building.estimate_recall", lambda *_, **__: rough)
    made = Index.create(tmp_path / "i.manifind", folder, extractor=extractor, **PARAMETERS)
    monkeypatch.undo()
    assert made.manifold.graph_ == rough
    (folder / "1.png").rename(folder / "1b.png")  # no region changes
    made.sync()
    assert made.manifold.graph_ == Index.open(made.path, extractor=made.extractor).manifold.graph_ == rough
    made.remove(["2.png"])
    assert made.manifold.graph_ == rough._replace(updated=True)
    assert made.info()["graph"]["recall"] == 0.75
    assert "75.0 % of the true ones" in made.info()["graph"]["words"]
    assert "before it last changed" in made.info()["graph"]["words"]
    generation = made.generation
    made.sync()
    assert made.generation == generation  # nothing changed since


def test_an_index_from_before_graphs_were_spoken_of_opens_and_is_exact(made: Index) -> None:
    manifest = store.read_manifest(made.path, KIND, FORMAT)
    fields = {name: said for name, said in manifest["fields"].items() if name != "built"}
    fields["manifold"] = {**fields["manifold"], "knn": "exact"}
    with store.writing(made.path, KIND) as writer:
        writer.write(FORMAT, fields, {}, keep=manifest["files"])
    old = Index.open(made.path, extractor=made.extractor)
    assert old.manifold.graph_ == KnnReport("exact", 1.0, 1.0, 0)
    generation = old.generation
    old.sync()
    assert old.generation == generation
    old.remove([old.catalogue.images[0].key])
    assert old.info()["graph"]["method"] == "exact"
    assert old.check() == []


def test_half_precision_moves_scores_by_little(made: Index, tmp_path: Path) -> None:
    manifold = made.manifold
    assert manifold.vectors_.dtype == np.float16
    image_of = np.repeat(manifold.layout_.images, manifold.layout_.counts)
    extracted = [made.extractor.extract(made.photo(one.key).pixels).vectors for one in made.catalogue.images]
    single = Manifold(**made.info()["manifold"]).fit(np.concatenate(extracted), image_of)
    for query in extracted:
        a, b = manifold.search(query), single.search(query)
        # In so small a graph a single list that ends in another region moves a score by some per mille.
        np.testing.assert_allclose(
            a.scores[np.argsort(a.images)], b.scores[np.argsort(b.images)], atol=2e-2 * b.scores.max()
        )


def test_a_long_build_is_announced_and_one_that_cannot_fit_is_refused(
    folder: Path, tmp_path: Path, extractor: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[Estimate] = []
    monkeypatch.setattr(estimate, "MIN_ANNOUNCED_PHOTOS", 5)
    made = Index.create(
        tmp_path / "i.manifind", folder, extractor=extractor, on_estimate=announced.append, **PARAMETERS
    )
    (told,) = announced
    # So small a photo has fewer local features than are kept of one at most.
    spare = 8 * LOCAL_FEATURES.bytes - made.info()["bytes_by_part"]["local features"]
    assert told.photos == 8
    assert told.regions == pytest.approx(len(made.boxes), rel=0.3)
    assert told.finished == pytest.approx(made.info()["bytes"] + spare, rel=0.4)
    assert "8 photos to extract" in str(told)
    with pytest.raises(InvalidInputError, match=r"memory is 1\.0 MiB, and a graph of .* regions needs 5\d\d MiB"):
        Index.create(tmp_path / "small.manifind", folder, extractor=extractor, memory=2**20, **PARAMETERS)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with raises("disk-full", DiskFullError) as full:
        Index.create(tmp_path / "full.manifind", folder, extractor=extractor, **PARAMETERS)
    assert isinstance(full.value, OSError)
    assert full.value.errno == 28


def test_health_is_told_in_words(made: Index) -> None:
    facts = made.info()
    figures = facts["health"]
    degrees = np.diff(made.manifold.S_.indptr)
    assert figures["isolated_regions"] == (degrees == 0).sum()
    assert figures["mean_mutual_degree"] == pytest.approx(degrees.mean())
    assert 0 < figures["largest_component"] <= facts["regions"]
    assert any("mutual neighbours on average" in sentence for sentence in figures["words"])
    assert facts["bytes"] == sum(facts["bytes_by_part"].values())
    assert facts["bytes"] == sum(
        file.stat().st_size for file in made.path.iterdir() if file.suffix in (".npy", ".sqlite")
    )
    json.dumps(facts)


def test_a_graph_in_pieces_and_its_hubs_are_seen() -> None:
    """Spokes that share nothing but their hub, which can return the favour to one of them only; and two pairs."""
    hub, spokes = np.eye(50)[0], np.eye(50)[0] + np.eye(50)[1:41] * np.linspace(0.8, 1.2, 40)[:, None]
    pairs = np.eye(50)[[42, 42, 44, 44]] + 0.1 * np.eye(50)[[43, 45, 46, 47]]
    manifold = Manifold(k=1).fit(unit(np.concatenate([[hub], spokes, pairs])))
    seen = health(manifold.S_, manifold.neighbours_)
    assert (seen.hubs, seen.most_listed) == (1, 40)
    assert (seen.largest_component, seen.components) == (2, 3)
    assert seen.isolated_regions == 39
    words = " ".join(seen.words())
    assert "in 3 pieces" in words
    assert "1 regions are hubs" in words
    assert "A larger k" in words


def test_opening_reads_nothing_and_takes_no_memory(tmp_path: Path) -> None:
    """From 2,000 to 200,000 regions, on sparse files: what is touched is what is read."""
    program = """
import sys
from manifind.index import Index
def private():
    fields = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssFile"))
Index.open(sys.argv[1])
before = private()
opened = Index.open(sys.argv[2])
assert len(opened.boxes) == int(sys.argv[3])
print(private() - before)
"""
    grown = [_sparse_index(tmp_path / f"{photos}.manifind", photos) for photos in (100, 10_000)]
    small = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, grown[0], grown[0], "2000"], check=True, capture_output=True, text=True
    )
    large = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, grown[0], grown[1], "200000"], check=True, capture_output=True, text=True
    )
    small_memory, large_memory = int(small.stdout), int(large.stdout)
    size = sum(file.stat().st_size for file in grown[1].glob("*.npy"))
    assert size > 200e6
    # Files up to a mebibyte are read, the others mapped.
    read = sum(file.stat().st_size for file in grown[1].glob("*.npy") if file.stat().st_size <= store.SMALL)
    assert 1024 * large_memory < 0.02 * size + read
    assert 1024 * (large_memory - small_memory - 2048) < read


def _sparse_index(path: Path, photos: int) -> Path:
    """An index of the right shape whose arrays are holes."""
    each, d, k = 20, 512, 20
    n = photos * each
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {
        "vectors": ((n, d), np.float16),
        "neighbour_ids": ((n, k), np.int32),
        "neighbour_similarities": ((n, k), np.float32),
        "S_data": ((n * k,), np.float32),
        "S_indices": ((n * k,), np.int32),
        "S_indptr": ((n + 1,), np.int32),
        "degrees": ((n,), np.float32),
        "weights": ((n,), np.float32),
        "global_vectors": ((photos, d), np.float32),
        "boxes": ((n, 4), np.float32),
    }
    records = [ImageRecord(i, f"{i}.jpg", f"{i}", 1, 1, 4, 3) for i in range(photos)]
    config = BuildConfig(path.parent, small_extractor(), {"k": k}, None, None, WhiteningOrigin("none"))
    fields = config.manifest.fields
    with store.writing(path, KIND) as writer:
        arrays: dict[str, Any] = {"images": np.arange(photos, dtype=np.int32), "starts": np.arange(0, n + 1, each)}
        writer.write(FORMAT, fields, arrays, {CATALOGUE: Catalogue.of(records, []).to_bytes()})
        listed = store.read_manifest(path, KIND, FORMAT)["files"]
        for name, (shape, kind) in shapes.items():
            file = path / f"{name}-1.npy"
            hole = np.lib.format.open_memmap(file, "w+", kind, shape)
            if name == "S_indptr":
                hole[-1] = n * k
            del hole
            digest = store.digest(file) if file.stat().st_size <= store.SMALL else "never looked at"
            listed[f"{name}.npy"] = {"file": file.name, "bytes": file.stat().st_size, "sha256": digest}
        kept = dict(listed)
        writer.write(FORMAT, fields, {}, {}, keep=kept)
    return path


def test_numbers_of_numpy_are_numbers(folder: Path, tmp_path: Path, extractor: Counting) -> None:
    made = Index.create(tmp_path / "n.manifind", folder, extractor=extractor, k=np.int64(9), alpha=np.float32(0.5))
    assert made.info()["manifold"]["k"] == 9
