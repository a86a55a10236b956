"""Descriptions taught by verified pairs: what they learn, when they are believed, and what becomes of the index."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manifind.describe.whitening import Whitening, unit_rows
from manifind.errors import InvalidInput
from manifind.index import Index
from manifind.index.state.generation import Generation
from manifind.index.tending import teach, teaching
from manifind.index.tending.pairs import PhotoPair
from manifind.index.tending.teach import composed
from manifind.index.tending.teaching import Taught, diffused_rank, kept_apart, reciprocal_ranks, taught
from manifind.manifold import Manifold
from tests.commands import run
from tests.described import PLAINLY
from tests.index.small import save_photo, save_photos, small_describer, small_photo

FOUND = np.zeros((1, 2), np.intp)
"""The first regions of two photos match."""


def collection(nuisance: float, *, things: int = 200, d: int = 16, seed: int = 0) -> tuple[np.ndarray, list[PhotoPair]]:
    """Two photos of one region of each thing: what it is in half of the dimensions, and what varies in the others."""
    rng = np.random.default_rng(seed)
    what = np.repeat(rng.standard_normal((things, d // 2)), 2, axis=0)
    varies = nuisance * rng.standard_normal((2 * things, d // 2))
    vectors = unit_rows(np.hstack([what + 0.1 * rng.standard_normal(what.shape), varies]))
    return vectors, [PhotoPair(2 * i, 2 * i + 1, FOUND) for i in range(things)]


def test_what_varies_between_views_is_unlearnt_and_things_kept_apart_are_found_again() -> None:
    vectors, pairs = collection(nuisance=1.5)
    learnt = taught(vectors, np.arange(len(vectors) + 1), pairs, shrinkage=0.1)
    assert learnt.helps
    assert learnt.after > learnt.before + 0.2
    assert learnt.pairs + learnt.apart == len(pairs)
    weights = np.linalg.norm(learnt.project, axis=1)
    assert weights[:8].min() > 2 * weights[8:].max()


def test_no_more_pairs_judge_than_a_sample_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, pairs = collection(nuisance=1.5)
    monkeypatch.setattr(teaching, "SAMPLE", (10, 100_000))
    asked: list[int] = []

    def noted(vectors: np.ndarray, thing_of: np.ndarray, some: np.ndarray, project: np.ndarray | None) -> np.ndarray:
        asked.append(len(some))
        return reciprocal_ranks(vectors, thing_of, some, project)

    monkeypatch.setattr(teaching, "reciprocal_ranks", noted)
    assert taught(vectors, np.arange(len(vectors) + 1), pairs, shrinkage=0.1).helps
    assert len(asked) == 2
    assert all(10 <= count < 20 for count in asked)


def test_pairs_that_have_nothing_in_common_do_not_help() -> None:
    vectors = unit_rows(np.random.default_rng(1).standard_normal((400, 16)))
    pairs = [PhotoPair(2 * i, 2 * i + 1, FOUND) for i in range(200)]
    learnt = taught(vectors, np.arange(401), pairs)
    assert abs(learnt.after - learnt.before) < 3 * learnt.error + 0.02


def test_a_gain_within_its_error_is_not_believed() -> None:
    learnt = Taught(np.eye(2, dtype=np.float32), 1, 1, 1, 1, 0.5, 0.52, 0.03)
    assert not learnt.helps
    assert replace(learnt, after=0.54).helps
    assert not replace(learnt, after=0.4).helps


def test_what_lets_diffusion_lose_is_refused() -> None:
    learnt = Taught(np.eye(2, dtype=np.float32), 1, 1, 1, 1, 0.5, 0.6, 0.03)
    assert replace(learnt, diffused=(0.8, 0.8)).helps
    assert not replace(learnt, diffused=(0.8, 0.79)).helps


def test_photos_are_ranked_by_diffusion_among_those_of_other_things() -> None:
    vectors, pairs = collection(nuisance=0.1, things=30)
    manifold = Manifold(k=5, query_k=5, alpha=0.3).fit(vectors, np.arange(len(vectors)))
    assert diffused_rank(manifold, pairs, len(vectors)) == 1
    crossed = [PhotoPair(pair.a, (pair.b + 2) % len(vectors), FOUND) for pair in pairs[::2]]
    ranks = []
    for pair in crossed:
        for image, other in ((pair.a, pair.b), (pair.b, pair.a)):
            images = manifold.search(vectors[[image]], None).images.tolist()
            ranks.append(1 / (1 + sum(one not in (image, other) for one in images[: images.index(other)])))
    assert diffused_rank(manifold, crossed, len(vectors)) == pytest.approx(np.mean(ranks))
    assert np.mean(ranks) < 0.5


def test_a_graph_by_which_photos_find_each_other_later_is_not_written(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt(monkeypatch, after=0.6)
    exams = (PhotoPair(0, 5, FOUND),)
    plain = vars(teach)["taught"]
    monkeypatch.setattr(teach, "taught", lambda *given: replace(plain(*given), exams=exams))
    said = iter([0.9, 0.8, 0.8, 0.9])
    monkeypatch.setattr(teach, "diffused_rank", lambda *_: next(said))
    refused = index.learn()
    assert (refused.diffused, refused.helps, index.generation) == ((0.9, 0.8), False, 1)
    assert not (index.path / ".part").exists()
    taken = index.learn()
    assert (taken.diffused, taken.helps, index.generation) == ((0.8, 0.9), True, 2)


def test_too_few_pairs_are_said_to_be_too_few() -> None:
    vectors, pairs = collection(1.0)
    with pytest.raises(InvalidInput, match="6 pairs that show the same thing, of 6 things"):
        taught(vectors, np.arange(len(vectors) + 1), pairs[:6])
    with pytest.raises(InvalidInput, match="0 pairs"):
        taught(vectors, np.arange(len(vectors) + 1), [])


def test_nothing_that_judges_has_taught() -> None:
    pairs = [PhotoPair(0, i, FOUND) for i in range(1, 9)] + [PhotoPair(10 + 2 * i, 11 + 2 * i, FOUND) for i in range(8)]
    shown = np.concatenate([np.zeros(10, np.int32), 1 + np.arange(16, dtype=np.int32) // 2])
    apart = kept_apart(pairs, shown)
    exams = [pair for pair in pairs if shown[pair.a] in apart]
    assert 0 < len(exams) <= len(pairs) / 2
    taught_by = {pair.a for pair in pairs} | {pair.b for pair in pairs}
    taught_by -= {image for pair in exams for image in (pair.a, pair.b)}
    assert apart.isdisjoint(shown[sorted(taught_by)].tolist())


def test_a_third_of_the_pairs_is_kept_apart_as_far_as_whole_things_allow() -> None:
    pairs = [PhotoPair(4 * thing, 4 * thing + i, FOUND) for thing in range(6) for i in (1, 2, 3)]
    assert kept_apart(pairs, np.repeat(np.arange(6, dtype=np.int32), 4)) == {0, 2}


def test_the_rank_counts_regions_of_other_things_that_are_nearer() -> None:
    angles = np.deg2rad([0, 30, 10, 20, 40, 5])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    thing_of = np.array([0, 0, 1, 1, 1, 0], np.int32)  # at 10° and 20° lies something else, at 5° the same again
    ranks = reciprocal_ranks(vectors, thing_of, np.array([[0, 1], [1, 0], [0, 5]]))
    np.testing.assert_allclose(ranks, [1 / 3, 1 / 4, 1])


@pytest.mark.parametrize("whitened", [True, False])
def test_one_whitening_does_what_the_two_do(whitened: bool, rng: np.random.Generator) -> None:
    raw, project = rng.standard_normal((20, 12)), rng.standard_normal((8, 8)).astype(np.float32)
    mean, directions = (rng.standard_normal(shape).astype(np.float32) for shape in (12, (12, 8)))
    first = Whitening(mean, directions) if whitened else None
    before = unit_rows(raw[:, :8]) if first is None else first.apply(raw)
    both = composed(first, project, "")
    given = raw[:, :8] if first is None else raw
    np.testing.assert_allclose(both.apply(given), unit_rows(before @ project), atol=1e-5)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Twenty small photos."""
    save_photos(tmp_path / "photos", 20, digits=2)
    return Index.create(
        tmp_path / "photos.manifind", tmp_path / "photos", describer=small_describer(), k=15, query_k=12
    )


def learnt(monkeypatch: pytest.MonkeyPatch, after: float) -> np.ndarray:
    """Let teaching end in this gain over 0.5, with a projection of its own, which is returned."""
    project = (np.eye(8) + 0.1 * np.random.default_rng(3).standard_normal((8, 8))).astype(np.float32)
    monkeypatch.setattr(teach, "verified_pairs", lambda *_: iter(()))
    monkeypatch.setattr(teach, "taught", lambda *_: Taught(project, 5, 50, 5, 3, 0.5, after, 0.01))
    return project


def test_an_index_is_seen_through_what_it_learnt(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    project = learnt(monkeypatch, after=0.6)
    before, old = index.generation, np.array(index.manifold.vectors_, np.float32)
    stages = []
    assert index.learn(progress=lambda stage, *_: stages.append(stage)).helps
    assert index.generation == before + 1
    assert "graph" in stages
    np.testing.assert_allclose(index.manifold.vectors_, unit_rows(old @ project), atol=2e-3)
    # A query is described as the photos now are.
    state = index.state
    assert isinstance(state, Generation)
    for seed in (0, 7):
        described = index.describer.describe(small_photo(seed)).vectors
        np.testing.assert_allclose(described, index.manifold.vectors_[state.regions_of(seed)], atol=5e-3)
    assert index.check() == []
    assert "taught by 5 pairs" in index.info()["whitening"]["words"]


def test_photos_that_come_later_are_described_by_what_was_learnt(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt(monkeypatch, after=0.6)
    index.learn()
    save_photo(tmp_path / "photos" / "more.png", 3)
    with Index.open(index.path, describer=small_describer()) as again:
        assert again.sync().described == 0  # the same bytes as 03.png
        save_photo(tmp_path / "photos" / "other.png", 40)
        changes = again.sync()
        assert (changes.described, changes.kept) == (1, 20)
        assert again.search("other.png", top=1)[0].key == "other.png"
        assert again.check() == []
        assert again.state.manifest.whitening.pairs == 5


def test_what_does_not_help_changes_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt(monkeypatch, after=0.505)
    files = {file: file.read_bytes() for file in index.path.rglob("*") if file.is_file()}
    assert not index.learn().helps
    assert {file: file.read_bytes() for file in index.path.rglob("*") if file.is_file()} == files


def test_an_interruption_leaves_the_index_as_it_was(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt(monkeypatch, after=0.6)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(teach, "rebuild", interrupted)
    before = np.array(index.manifold.vectors_)
    with pytest.raises(KeyboardInterrupt):
        index.learn()
    with Index.open(index.path, describer=small_describer(), verify=True) as again:
        assert again.generation == index.generation
        np.testing.assert_array_equal(again.manifold.vectors_, before)
        assert again.sync().kept == 20


def test_means_of_regions_match_nothing(tmp_path: Path) -> None:
    save_photos(tmp_path / "photos", 6)
    made = Index.create(tmp_path / "m.manifind", tmp_path / "photos", describer=small_describer(), k=5, means=3)
    with pytest.raises(InvalidInput, match="means"):
        made.learn()


def test_the_command_finds_the_pairs_by_geometry_and_says_what_they_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teaching, "FEWEST", 2)
    monkeypatch.setattr(teaching, "LESSONS", 2)
    (tmp_path / "photos").mkdir()
    # The left and the right of photographs, each seen twice, a little aside.
    for name in ("astronaut.png", "coffee.png", "motorcycle_left.png", "motorcycle_right.png", "hubble_deep_field.jpg"):
        whole = Image.open(str(files("skimage") / "data" / name)).convert("RGB").resize((640, 480))
        for x in (0, 340):
            for view in range(2):
                part = whole.crop((x + 30 * view, 100 + 20 * view, x + 250 + 30 * view, 300 + 20 * view))
                part.save(tmp_path / "photos" / f"{name[:-4]}-{x}-{view}.png")
    target = tmp_path / "photos.manifind"
    Index.create(target, tmp_path / "photos", **PLAINLY, k=20, query_k=20)
    ended = run("learn", target, "--json")
    told = json.loads(ended.stdout)
    # Three photographs have a pair on either side, and the two of the motorcycle up to six together.
    assert 10 <= told["pairs"] + told["apart"] <= 18
    assert told["regions"] >= told["pairs"]
    assert ended.exit_code == (0 if told["helps"] else 1)
    assert told["generation"] == (2 if told["helps"] else 1)
    shown = run("learn", target)
    assert "pairs of photos show the same thing" in shown.stdout
    assert ("It helps" in shown.stdout) == (shown.exit_code == 0)


@pytest.mark.parametrize("projected", [True, False])
def test_reciprocal_ranks_are_those_of_counting(projected: bool, rng: np.random.Generator) -> None:
    vectors = unit_rows(rng.standard_normal((60, 6)).astype(np.float32))
    project = rng.standard_normal((6, 4)).astype(np.float32) if projected else None
    thing_of = rng.integers(0, 12, 60).astype(np.int32)
    asked = np.array([(i, j) for i in range(60) for j in range(60) if i != j and thing_of[i] == thing_of[j]])
    seen = vectors.astype(np.float64) if project is None else vectors.astype(np.float64) @ project
    seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    expected = []
    for first, second in asked.tolist():
        similar = seen @ seen[first]
        others = np.flatnonzero(thing_of != thing_of[first])
        expected.append(1 / (1 + sum(similar[i] > similar[second] + 1e-6 for i in others)))
    np.testing.assert_allclose(reciprocal_ranks(vectors, thing_of, asked, project), expected)
