"""Which way neighbours are found, and how many of them are said to be found."""

import json
import logging
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind import DamagedError, ManifindWarning, Manifold, kernels
from manifind.graph import (
    KnnReport,
    Neighbours,
    choose_knn_method,
    estimate_recall,
    exact_neighbours,
    expected_seconds,
    knn_method,
)
from manifind.kernels import VectorSet
from manifind.kernels.api import BACKENDS
from manifind.kernels.costs import CostModel
from manifind.manifold.estimator import FORMAT
from manifind.storage import store
from manifind.types import FloatArray
from tests.collections_of_regions import make, unit

ks, threads = st.integers(1, 2000), st.integers(1, 256)


def spoilt(lists: Neighbours, vectors: FloatArray, keep: int) -> Neighbours:
    """Replace all but the first `keep` of each list by the regions least like it, scored exactly."""
    ids = lists.ids.copy()
    far = np.argsort(vectors @ vectors.T, axis=1)
    ids[:, keep:] = far[:, : ids.shape[1] - keep][:, ::-1]
    return Neighbours(ids, np.einsum("id,ikd->ik", vectors, vectors[ids]))


@pytest.fixture
def always_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which NN-Descent is expected to win from the first region."""
    monkeypatch.setattr(knn_method, "COSTS", CostModel(max_exact_regions=0, descent_seconds=0.0))


# -- choosing ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 200_000), ks, threads, st.booleans())
def test_few_regions_are_compared_all_with_all(n: int, k: int, threads: int, compiled: bool) -> None:
    assert choose_knn_method(n, k, threads, compiled=compiled) == "exact"


@given(ks, threads)
def test_from_some_size_on_it_is_nn_descent(k: int, threads: int) -> None:
    ways = [choose_knn_method(int(n), k, threads, compiled=True) for n in np.geomspace(1e5, 1e12, 40)]
    assert ways == sorted(ways)
    assert ways[-1] == "nn-descent"


@given(st.integers(200_001, 10**8), ks, threads)
def test_the_choice_is_the_way_that_is_expected_to_be_faster(n: int, k: int, threads: int) -> None:
    exact, descent = (expected_seconds(way, n, k, 512, threads, compiled=True) for way in ("exact", "nn-descent"))
    assert choose_knn_method(n, k, threads, compiled=True) == ("nn-descent" if descent < exact else "exact")


@given(st.integers(1, 10**9), ks, threads)
def test_without_the_core_all_pairs_are_compared(n: int, k: int, threads: int) -> None:
    assert choose_knn_method(n, k, threads, compiled=False) == "exact"


def test_where_rows_cannot_descend_all_pairs_are_compared_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "cpu", "manifind.kernels.cpu.numpy_backend")
    vectors = unit(np.random.default_rng(7).normal(size=(50, 6)))
    with pytest.warns(ManifindWarning, match="needs the compiled core"):
        manifold = Manifold(k=5, knn="nn-descent").fit(vectors)
    assert manifold.graph_.method == "exact"


def test_more_neighbours_speak_for_all_pairs() -> None:
    def crossing(k: int) -> int:
        return next(
            n for n in range(200_000, 10**8, 10_000) if choose_knn_method(n, k, 1, compiled=True) == "nn-descent"
        )

    assert 200_000 < crossing(500) < crossing(2000)


def test_the_machine_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "thread_count", lambda: 8)
    monkeypatch.setattr(kernels, "compiled", lambda: False)
    for way in ("exact", "nn-descent"):
        assert expected_seconds(way, 10**6, 50, 512) == expected_seconds(way, 10**6, 50, 512, 8, compiled=False)
        assert expected_seconds(way, 10**6, 50, 512) < expected_seconds(way, 10**6, 50, 512, 2, compiled=False)


# -- measuring --------------------------------------------------------------------------------------------------------


@given(st.integers(2, 60), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_recall_over_all_regions_is_that_of_brute_force(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, k = unit(rng.normal(size=(n, 5))), min(k, n - 1)
    ids = np.stack([rng.permutation(np.delete(np.arange(n), i))[:k] for i in range(n)]).astype(np.int32)
    lists = Neighbours(ids, np.einsum("id,ikd->ik", vectors, vectors[ids]))
    products = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.fill_diagonal(products, -2)
    true = np.argsort(-products, axis=1)[:, :k]
    share = np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(true, ids, strict=True)])
    built = estimate_recall("given", lists, vectors, k, sample=n)
    assert built.recall == pytest.approx(share, abs=1e-9)
    assert (built.method, built.sample, built.expected_recall) == ("given", n, None)


@pytest.mark.parametrize("keep", [0, 3, 9, 20])
def test_a_bad_graph_has_a_low_recall(keep: int, caplog: pytest.LogCaptureFixture) -> None:
    vectors = make("clusters", images=400, most_regions=3, d=16, seed=1).vectors
    lists = spoilt(exact_neighbours(vectors, 20), vectors, keep)
    with caplog.at_level(logging.INFO, "manifind"):
        built = estimate_recall("nn-descent", lists, vectors, 20)
    assert built.recall == pytest.approx(keep / 20, abs=0.01)
    assert built.sample == knn_method.RECALL_SAMPLE
    assert built.expected_recall is not None
    assert ("finds all" in built.words()) == (keep < 18)
    (said,) = caplog.records
    assert (said.levelname == "WARNING") == (keep < 18)


def test_only_the_first_k_of_longer_lists_count() -> None:
    vectors = make("clusters", images=100, most_regions=3, d=8, seed=2).vectors
    lists = spoilt(exact_neighbours(vectors, 20), vectors, 10)
    assert estimate_recall("nn-descent", lists, vectors, 10).recall == 1
    assert estimate_recall("nn-descent", lists, vectors, 20).recall == pytest.approx(0.5, abs=0.02)


def test_any_of_equal_regions_counts_as_found_and_none_counts_twice(rng: np.random.Generator) -> None:
    vectors = np.repeat(unit(rng.normal(size=(5, 6))), 12, axis=0)
    n, k = len(vectors), 4
    groups = [np.delete(np.arange(12) + i // 12 * 12, i % 12) for i in range(n)]
    ids = np.stack([rng.permutation(equals)[:k] for equals in groups])
    same = np.ones((n, k), np.float32)
    assert estimate_recall("given", Neighbours(ids.astype(np.int32), same), vectors, k).recall == 1
    ids[:, 1:] = ids[:, :1]
    assert estimate_recall("given", Neighbours(ids.astype(np.int32), same), vectors, k).recall == 1 / k


# -- a manifold says it -----------------------------------------------------------------------------------------------


def test_by_default_a_small_collection_is_exact_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    collection = make("clusters", images=60, most_regions=4, d=8, seed=3)
    with caplog.at_level(logging.INFO, "manifind"):
        manifold = Manifold(k=8).fit(collection.vectors, collection.image_of)
    assert manifold.knn == "auto"
    assert manifold.graph_ == KnnReport("exact", 1.0, 1.0, 0)
    assert "none is missing" in manifold.graph_.words()
    assert f"graph: exact for {collection.n} regions and k = 8, expected recall 1" in caplog.text
    np.testing.assert_array_equal(manifold.neighbours_.ids, exact_neighbours(collection.vectors, 8).ids)


@pytest.mark.usefixtures("always_descent")
def test_what_auto_picks_is_what_is_done_and_its_recall_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    vectors = make("clusters", images=500, most_regions=4, d=16, seed=4).vectors
    with caplog.at_level(logging.INFO, "manifind"):
        manifold = Manifold(k=12).fit(vectors)
    assert manifold.graph_.method == "nn-descent"
    assert manifold.graph_.sample == knn_method.RECALL_SAMPLE
    true = exact_neighbours(vectors, 12).ids
    shares = [len(np.intersect1d(a, b)) / 12 for a, b in zip(true, manifold.neighbours_.ids, strict=True)]
    assert manifold.graph_.recall == pytest.approx(np.mean(shares), abs=0.02)
    assert "expected recall 0.995" in caplog.text
    assert "estimated on 300 regions" in caplog.text
    forced = Manifold(k=12, knn="exact").fit(vectors)
    assert forced.graph_ == KnnReport("exact", 1.0, 1.0, 0)


def test_lists_that_were_given_are_measured() -> None:
    vectors = make("clusters", images=100, most_regions=3, d=8, seed=5).vectors
    lists = exact_neighbours(vectors, 10)
    whole = Manifold(k=10).fit(vectors, neighbours=lists).graph_
    assert (whole.method, whole.recall, whole.sample) == ("given", 1.0, len(vectors))
    half = Manifold(k=10).fit(vectors, neighbours=spoilt(lists, vectors, 5)).graph_
    assert half.recall == pytest.approx(0.5, abs=0.02)
    assert "were given: " in half.words()


def test_a_single_region_has_nothing_to_miss() -> None:
    with pytest.warns(UserWarning, match="k is 0 here"):
        assert Manifold(k=3).fit(np.eye(1, 4, dtype=np.float32)).graph_.recall == 1
    given_nothing = np.empty((1, 0), np.int32), np.empty((1, 0), np.float32)
    assert Manifold(k=3).fit(np.eye(1, 4, dtype=np.float32), neighbours=given_nothing).graph_.recall is None


# -- and keeps it -----------------------------------------------------------------------------------------------------


def test_an_update_keeps_what_stays_true() -> None:
    vectors = unit(np.random.default_rng(6).normal(size=(120, 6)))
    origin = np.concatenate([np.arange(100), np.full(10, -1)])
    exact = Manifold(k=7, reserve=3).fit(vectors[:100])
    exact.update(vectors[:110], np.arange(110), origin)
    assert exact.graph_ == KnnReport("exact", 1.0, 1.0, 0)
    assert estimate_recall("given", exact.neighbours_, vectors[:110], 7).recall == 1
    rough = Manifold(k=7).fit(vectors[:100], neighbours=spoilt(exact_neighbours(vectors[:100], 7), vectors[:100], 4))
    before = rough.graph_
    rough.update(vectors[:110], np.arange(110), origin)
    assert rough.graph_ == before._replace(updated=True)
    assert "when the graph was built, before it last changed" in rough.graph_.words()
    mostly_new = np.concatenate([np.arange(60), np.full(60, -1)])
    assert rough.update(vectors, np.arange(120), mostly_new).graph_ == KnnReport("exact", 1.0, 1.0, 0)


def test_there_is_nothing_to_measure_where_all_pairs_were_compared() -> None:
    class Untouchable:
        shape = 50, 6

    vectors = unit(np.random.default_rng(7).normal(size=(50, 6)))
    lists = exact_neighbours(vectors, 7)
    assert estimate_recall("exact", lists, cast(VectorSet, Untouchable()), 7)  # whoever searches it fails
    assert estimate_recall("exact", lists, vectors, 7) == KnnReport("exact", 1.0, 1.0, 0)


def saved(manifold: Manifold, path: Path) -> dict[str, Any]:
    manifold.save(path)
    fields: dict[str, Any] = json.loads((path / "manifest.json").read_text())["fields"]
    return fields


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    vectors = make("clusters", images=100, most_regions=3, d=8, seed=8).vectors
    for number, manifold in enumerate(
        (
            Manifold(k=10).fit(vectors),
            Manifold(k=10).fit(vectors, neighbours=spoilt(exact_neighbours(vectors, 10), vectors, 7)),
        )
    ):
        path = tmp_path / f"{number}.manifold"
        fields = saved(manifold, path)
        assert fields["built"] == manifold.graph_._asdict()
        loaded = Manifold.load(path)
        assert loaded.graph_ == manifold.graph_
        assert loaded.knn == "auto"
        again = Manifold.from_arrays(*loaded.to_arrays())
        assert again.graph_ == manifold.graph_


def test_what_was_saved_before_there_was_a_word_of_it_still_loads(tmp_path: Path) -> None:
    collection = make("clusters", images=60, most_regions=3, d=8, seed=9)
    manifold = Manifold(k=10, knn="exact").fit(collection.vectors, collection.image_of)
    fields, arrays = manifold.to_arrays()
    del fields["built"]
    with store.writing(tmp_path / "old.manifold", "manifold") as writer:
        writer.write(FORMAT, fields, arrays)
    old = Manifold.load(tmp_path / "old.manifold")
    assert old.graph_ == KnnReport("unknown", None, None, 0)
    assert old.graph_.words() == "How neighbours were found is not known."
    query = collection.queries[0]
    np.testing.assert_array_equal(old.search(query).images, manifold.search(query).images)
    old.save(tmp_path / "again.manifold")
    assert Manifold.load(tmp_path / "again.manifold").graph_ == old.graph_


def test_a_manifold_of_format_1_loads(tmp_path: Path) -> None:
    collection = make("clusters", images=30, most_regions=3, d=8, seed=9)
    manifold = Manifold(k=10, gmp_lambda=2.0).fit(collection.vectors, collection.image_of)
    fields, arrays = manifold.to_arrays()
    del fields["solver"]
    former = {"gmp_lambda": "lam", "knn": "graph"}
    with store.writing(tmp_path / "old.manifold", "manifold") as writer:
        writer.write(1, {former.get(name, name): value for name, value in fields.items()}, arrays)
    assert Manifold.load(tmp_path / "old.manifold").get_params() == manifold.get_params()


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"method": "exact"},
        {"method": 3, "expected_recall": 1.0, "recall": 1.0, "sample": 0},
        {"method": "exact", "expected_recall": 1.0, "recall": 7.0, "sample": 0},
        {"method": "exact", "expected_recall": "much", "recall": 1.0, "sample": 0},
        {"method": "exact", "expected_recall": 1.0, "recall": 1.0, "sample": -1},
        {"method": "exact", "expected_recall": 1.0, "recall": 1.0, "sample": 0, "colour": "blue"},
        "exact",
    ],
)
def test_what_no_graph_could_say_is_damage(record: Any) -> None:
    with pytest.raises(DamagedError, match="graph's making"):
        KnnReport.of(record)


def test_twice_the_regions_take_four_times_as_long_to_compare_and_about_twice_as_long_to_descend() -> None:
    for n in (500, 10**6):
        exact, descent = (
            [expected_seconds(way, count, 50, 512, 1, compiled=True) for count in (n, 2 * n)]
            for way in ("exact", "nn-descent")
        )
        assert exact[1] == pytest.approx(4 * exact[0])
        assert descent[1] == pytest.approx(2 * descent[0])


def test_as_many_threads_compare_as_many_times_as_fast() -> None:
    one, eight = (expected_seconds("exact", 10**6, 50, 512, threads, compiled=True) for threads in (1, 8))
    assert one == pytest.approx(8 * eight)
    assert one == pytest.approx(10**12 * 512 / 2.3e11)
    one, eight = (expected_seconds("nn-descent", 106_887, 50, 512, threads, compiled=True) for threads in (1, 8))
    assert one == pytest.approx(11, abs=1)
    assert one / 8 < eight < one / 4


@pytest.mark.parametrize(
    ("recall", "share"), [(1.0, "100.0 %"), (0.9999, "99.9 %"), (0.957, "95.7 %"), (0.9, "90.0 %")]
)
def test_a_recall_is_said_to_a_tenth_and_never_rounded_up(recall: float, share: str) -> None:
    words = KnnReport("nn-descent", 0.995, recall, 300).words()
    assert words == f"Neighbours were found by NN-Descent: {share} of the true ones, estimated on 300 regions."
