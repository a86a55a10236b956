import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.decomposition import PCA

from manifind.errors import DamagedError, InvalidInputError
from manifind.features import Moments, Whitening, learn_pca, learn_supervised, moments, whitening_of
from manifind.features.whitening import unit_rows

Array = npt.NDArray[np.float32]


def correlated(rng: np.random.Generator, n: int = 600, d: int = 12, centre: float = 0.3) -> Array:
    mix = rng.normal(size=(d, d)) * np.geomspace(1, 0.02, d)[:, None]
    return (rng.normal(size=(n, d)) @ mix + centre).astype(np.float32)


def test_whitened_vectors_have_identity_covariance(rng: np.random.Generator) -> None:
    vectors = correlated(rng)
    learnt = learn_pca(vectors, dimension=7)
    projected = (vectors - learnt.mean) @ learnt.project
    np.testing.assert_allclose(np.cov(projected.T, bias=True), np.eye(7), atol=1e-3)
    np.testing.assert_allclose(projected.mean(axis=0), 0, atol=1e-4)


def test_pca_equals_scikit_learn_up_to_signs(rng: np.random.Generator) -> None:
    vectors = correlated(rng)
    learnt = learn_pca(vectors, dimension=5)
    theirs = PCA(5, whiten=True).fit(vectors.astype(np.float64))
    projected = theirs.components_.T / np.sqrt(theirs.explained_variance_ * (len(vectors) - 1) / len(vectors))
    np.testing.assert_allclose(np.abs(learnt.project), np.abs(projected), rtol=1e-3, atol=1e-4)


def test_blocks_teach_the_same_as_one_array(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = correlated(rng)
    at_once = learn_pca(vectors, dimension=6)
    in_blocks = learn_pca((vectors[at : at + 77] for at in range(0, 600, 77)), dimension=6)
    monkeypatch.setattr(moments, "BLOCK", 64)
    in_small_blocks = learn_pca(vectors, dimension=6)
    for other in (in_blocks, in_small_blocks):
        np.testing.assert_allclose(other.mean, at_once.mean, rtol=1e-6)
        np.testing.assert_allclose(other.project, at_once.project, rtol=1e-4, atol=1e-5)


def test_a_mean_far_from_the_origin_does_not_spoil_the_covariance(rng: np.random.Generator) -> None:
    vectors = correlated(rng, centre=0.0).astype(np.float64)
    near, far = learn_pca(vectors, dimension=6), learn_pca(vectors + 1e6, dimension=6)
    np.testing.assert_allclose(far.project, near.project, rtol=1e-4, atol=1e-4)


def test_applying_gives_unit_rows_by_the_formula_for_few_vectors_and_for_many(rng: np.random.Generator) -> None:
    vectors = correlated(rng)
    learnt = learn_pca(vectors, dimension=7)
    expected = (vectors.astype(np.float64) - learnt.mean) @ learnt.project
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    whitened = learnt.apply(vectors)
    assert whitened.dtype == np.float32
    np.testing.assert_allclose(whitened, expected, atol=1e-5)
    np.testing.assert_allclose(learnt.apply(vectors[:9]), expected[:9], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(whitened, axis=1), 1, atol=1e-6)


def test_a_row_without_direction_gets_all_entries_equal() -> None:
    np.testing.assert_allclose(
        unit_rows(np.array([[0.0, 0.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0]])), [[0.5] * 4, [0.6, 0.8, 0, 0]]
    )


def matching_groups(rng: np.random.Generator) -> tuple[Array, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Twenty things seen ten times each; what changes between sights is stronger than what tells things apart."""
    d, things, sights = 16, 20, 10
    thing_of = np.repeat(np.arange(things), sights)
    centres = rng.normal(size=(things, d)) * np.where(np.arange(d) < 6, 0.3, 0.05)
    nuisance = rng.normal(size=(things * sights, d)) * np.where(np.arange(d) >= 12, 2.0, 0.1)
    vectors = unit_rows(centres[thing_of] + nuisance)
    pairs = np.argwhere(np.triu(thing_of[:, None] == thing_of, k=1))
    return vectors, thing_of, pairs


def share_of_right_neighbours(vectors: Array, thing_of: npt.NDArray[np.int64]) -> float:
    similarities = vectors @ vectors.T
    np.fill_diagonal(similarities, -np.inf)
    return float((thing_of[similarities.argmax(axis=1)] == thing_of).mean())


def test_matching_pairs_teach_to_tell_things_apart_where_pca_cannot(rng: np.random.Generator) -> None:
    vectors, thing_of, pairs = matching_groups(rng)
    half = thing_of < 10
    of_known = pairs[half[pairs[:, 0]]]
    unsupervised = learn_pca(vectors[half], dimension=6).apply(vectors[~half])
    supervised = learn_supervised(vectors[half], of_known, dimension=6).apply(vectors[~half])
    unseen = thing_of[~half]
    raw = share_of_right_neighbours(vectors[~half], unseen)
    assert share_of_right_neighbours(supervised, unseen) > 0.3 + max(
        raw, share_of_right_neighbours(unsupervised, unseen)
    )


def test_differences_of_matching_pairs_have_identity_covariance(rng: np.random.Generator) -> None:
    vectors, _, pairs = matching_groups(rng)
    learnt = learn_supervised(vectors, pairs, dimension=9)
    differences = (vectors[pairs[:, 0]].astype(np.float64) - vectors[pairs[:, 1]]) @ learnt.project
    np.testing.assert_allclose(differences.T @ differences / len(pairs), np.eye(9), atol=1e-4)
    spread = np.cov(((vectors - learnt.mean) @ learnt.project).T)
    np.testing.assert_allclose(spread, np.diag(np.diag(spread)), atol=1e-3 * spread.max())
    assert (np.diff(np.diag(spread)) <= 1e-5).all()


def test_few_pairs_need_shrinkage(rng: np.random.Generator) -> None:
    vectors, _, pairs = matching_groups(rng)
    with pytest.raises(InvalidInputError, match=r"shrinkage=0\.1"):
        learn_supervised(vectors, pairs[:5], dimension=4)
    assert learn_supervised(vectors, pairs[:5], dimension=4, shrinkage=0.1).project.shape == (16, 4)


def test_a_saved_whitening_is_the_same_again_and_holds_no_pickle(tmp_path: Path, rng: np.random.Generator) -> None:
    learnt = learn_pca(correlated(rng), dimension=5)
    learnt.save(tmp_path / "w.npz")
    again = Whitening.load(tmp_path / "w.npz")
    np.testing.assert_array_equal(again.mean, learnt.mean)
    np.testing.assert_array_equal(again.project, learnt.project)
    assert again.sha256 == learnt.sha256 != learn_pca(correlated(rng), dimension=5).sha256


def test_what_is_not_a_saved_whitening_is_damaged(tmp_path: Path, rng: np.random.Generator) -> None:
    learn_pca(correlated(rng), dimension=5).save(tmp_path / "whole.npz")
    content = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.npz").write_text("mean")
    (tmp_path / "empty.npz").touch()
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps({"mean": 1}))
    np.savez(tmp_path / "half.npz", mean=np.zeros(3, np.float32))
    np.savez(tmp_path / "objects.npz", mean=np.array([None]), project=np.array([None]))
    np.savez(tmp_path / "shapes.npz", mean=np.zeros(3, np.float32), project=np.zeros((4, 2), np.float32))
    for name in ("cut", "text", "empty", "pickle", "half", "objects", "shapes"):
        with pytest.raises(DamagedError, match=f"{name}.npz is not a saved whitening"):
            Whitening.load(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError, match=r"none\.npz does not exist"):
        Whitening.load(tmp_path / "none.npz")


def test_768_dimensions_are_kept_by_default_and_all_where_there_are_fewer(rng: np.random.Generator) -> None:
    vectors = correlated(rng)
    assert learn_pca(vectors).project.shape == (12, 12)
    assert learn_supervised(vectors, rng.integers(600, size=(50, 2))).project.shape == (12, 12)
    wide = Moments(1, np.zeros(800), np.diag(np.arange(800.0, 0, -1)))
    assert whitening_of(wide).project.shape == (800, 768)


def test_what_cannot_be_learnt_from_is_refused_in_one_sentence(rng: np.random.Generator) -> None:
    vectors = correlated(rng)
    holes = vectors.copy()
    holes[3, 2] = np.nan
    with pytest.raises(InvalidInputError, match="dimension is 13 but vectors has 12"):
        learn_pca(vectors, dimension=13)
    with pytest.raises(InvalidInputError, match="vary in 3 directions only"):
        learn_pca(vectors[:4], dimension=5)
    with pytest.raises(InvalidInputError, match="NaN or infinite"):
        learn_pca(holes, dimension=5)
    with pytest.raises(InvalidInputError, match="at least two"):
        learn_pca(vectors[:1], dimension=1)
    with pytest.raises(InvalidInputError, match="at least two"):
        learn_pca(iter([]), dimension=1)
    with pytest.raises(InvalidInputError, match="blocks of 12 and of 5"):
        learn_pca([vectors, vectors[:, :5]], dimension=2)
    with pytest.raises(InvalidInputError, match="2-D array"):
        learn_pca(vectors[0], dimension=1)
    with pytest.raises(InvalidInputError, match="pairs runs from 0 to 600"):
        learn_supervised(vectors, [[0, 600]])
    with pytest.raises(InvalidInputError, match="pairs has shape"):
        learn_supervised(vectors, [0, 1])
    with pytest.raises(InvalidInputError, match="learnt on 12 dimensions"):
        learn_pca(vectors, dimension=5).apply(vectors[:, :5])
