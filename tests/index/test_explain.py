"""The chain that carries most, against trying all of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from manifind import Manifold
from manifind.demo.synthetic import planted_objects
from manifind.diffusion import Seed
from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.index import Index, MatchingPoints
from manifind.index.search.explain import Chain, Link, Place, verify_chain
from manifind.index.storage.snapshot import Snapshot
from manifind.manifold.paths import best_path


def all_pairs(S: np.ndarray, alpha: float) -> np.ndarray:
    """The largest product of α s_ij along any path between each two nodes (Floyd and Warshall)."""
    best = np.maximum(alpha * S, np.eye(len(S)))
    for k in range(len(S)):
        best = np.maximum(best, best[:, [k]] * best[[k], :])
    return best


@given(st.integers(2, 25), st.floats(0.05, 0.6), st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.99]))
def test_no_path_carries_more(n: int, density: float, seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu((rng.random((n, n)) < density) * rng.random((n, n)), 1).astype(np.float32)
    S = upper + upper.T
    seeds = np.sort(rng.choice(n, rng.integers(1, n), replace=False)).astype(np.int32)
    values = rng.uniform(0.1, 1, len(seeds)).astype(np.float32)
    targets = np.sort(rng.choice(n, rng.integers(1, n), replace=False)).astype(np.int32)
    carried = (values[:, None] * all_pairs(S.astype(np.float64), alpha)[np.ix_(seeds, targets)]).max()
    path = best_path(sp.csr_array(S), alpha, Seed(seeds, values), rng.random(n).astype(np.float32), targets)
    if path is None:
        assert carried == 0
        return
    assert path.regions[0] in seeds
    assert path.regions[-1] in targets
    start = values[np.searchsorted(seeds, path.regions[0])]
    assert start * path.flows.prod() == pytest.approx(carried, rel=1e-4)


def test_regions_that_hardly_scored_are_not_walked() -> None:
    S = np.zeros((5, 5), np.float32)
    for i, j, s in ((0, 1, 0.5), (1, 4, 0.5), (0, 3, 0.9), (3, 4, 0.9)):
        S[i, j] = S[j, i] = s
    scores = np.array([1, 0.9, 0.8, 0.01, 0.1], np.float32)  # 3 is the better way, but nothing reached it
    seed = Seed(np.array([0], np.int32), np.ones(1, np.float32))
    path = best_path(sp.csr_array(S), 0.9, seed, scores, np.array([4]), max_regions=3)
    assert path is not None
    assert path.regions.tolist() == [0, 1, 4]


def test_a_manifold_names_the_path_to_an_image() -> None:
    photos = planted_objects(30, objects=2, views=8, d=32)
    manifold = Manifold(k=12, query_k=8).fit(photos.vectors, photos.image_of)
    ranking = manifold.search(photos.queries[0])
    assert ranking.seed is not None
    carried = all_pairs(manifold.S_.toarray().astype(np.float64), 0.99)
    best = (ranking.seed.values[:, None] * carried[ranking.seed.regions]).max(axis=0)
    for image, score in zip(ranking.images, ranking.scores, strict=True):
        path = manifold.explain(ranking, int(image))
        of_image = best[photos.image_of == image].max()
        if path is None:
            assert of_image == 0 or score <= 0
            continue
        assert photos.image_of[path.regions[-1]] == image
        seeded = ranking.seed.values[np.searchsorted(ranking.seed.regions, path.regions[0])]
        assert seeded * path.flows.prod() == pytest.approx(of_image, rel=1e-4)
    with pytest.raises(InvalidInputError, match="image 30 is not in the collection"):
        manifold.explain(ranking, 30)
    with pytest.raises(InvalidInputError, match="has no seed"):
        manifold.explain(replace(ranking, seed=None), 0)
    assert "converged" not in repr(ranking)  # at 20 iterations it is no news, and looks like a failure


def test_a_seed_without_weight_leads_nowhere() -> None:
    nothing = Seed(np.empty(0, np.int32), np.empty(0, np.float32))
    assert (
        best_path(sp.csr_array((3, 3), dtype=np.float32), 0.9, nothing, np.zeros(3, np.float32), np.array([1])) is None
    )


def test_links_from_photo_to_photo_are_confirmed_by_their_points() -> None:
    query, first, second = Place(None, (0, 0, 9, 9)), Place("a.png", (0, 0, 9, 9)), Place("a.png", (5, 5, 9, 9))
    links = [
        Link(query, first, 0.6, 1.0),
        Link(first, second, 0.9, 0.1),
        Link(second, Place("b.png", first.box), 0.4, 0.1),
    ]
    none = np.empty((0, 2), np.float32)
    answers = {
        ("a.png", 9): MatchingPoints(True, none, none, np.eye(3), 12),
        ("b.png", 9): MatchingPoints(False, none, none, None, 0),
    }
    chain = verify_chain(
        Chain("b.png", tuple(links)), lambda link: answers[str(link.target.key), int(link.source.box[2])]
    )
    assert [(link.verified, link.inliers) for link in chain.links] == [(True, 12), (None, None), (False, None)]
    assert verify_chain(Chain("b.png", tuple(links)), lambda _: None).links == tuple(links)


def test_geometry_confirms_a_chain_by_kept_features_or_by_files_and_passes_over_files_that_are_gone(
    index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = (20.0, 30.0, 148.0, 158.0)
    hit = next(one for one in index.search(photos / "first-0.png", box, top=None) if one.key == "first-3.png")
    chain = index.explain(hit)
    seen = index.confirm(chain, photos / "first-0.png", box)
    assert all(link.verified for link in seen.links if not link.within)

    def gone(_: object, key: str) -> None:
        raise UnreadableImageError("no such file", key)

    state = index.state
    assert isinstance(state, Snapshot)
    bare = Index(index.path, replace(state, local=None))
    by_files = bare.confirm(chain, photos / "first-0.png", box)
    assert [link.verified for link in by_files.links] == [link.verified for link in seen.links]
    monkeypatch.setattr(Index, "photo", gone)
    monkeypatch.setattr("manifind.index.search.query._read", gone)
    assert index.confirm(chain, photos / "first-0.png", box) == seen
    assert bare.confirm(chain, photos / "first-0.png", box) == chain
