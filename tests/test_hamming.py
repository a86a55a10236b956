"""Hamming query expansion: against a literal version on given descriptors, and on photos that share a thing."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from manifind.baselines import HammingQueryExpansion
from manifind.baselines import hamming_expansion as hamming
from manifind.baselines.hamming_expansion import local_descriptors
from manifind.errors import InvalidInputError, ManifindWarning, MissingExtraError, NotFittedError
from manifind.types import FloatArray
from tests.errors import raises

Pixels = npt.NDArray[np.uint8]


# -- a literal version: an image, a feature, a bit at a time ----------------------------------------------------------


def bits_of(x: FloatArray, word: int, vocabulary: hamming.Embedding) -> list[int]:
    return [int(float(x @ column) > vocabulary.medians[word, b]) for b, column in enumerate(vocabulary.directions.T)]


def nearest_words(x: FloatArray, vocabulary: hamming.Embedding, count: int) -> list[int]:
    return sorted(range(len(vocabulary.centroids)), key=lambda w: float(np.square(x - vocabulary.centroids[w]).sum()))[
        :count
    ]


def literal_scores(
    images: Sequence[FloatArray], query: FloatArray, method: HammingQueryExpansion, vocabulary: hamming.Embedding
) -> tuple[list[float], bool]:
    """The score of each image, and whether any was reliable."""
    extracted = [
        [(word := nearest_words(x, vocabulary, 1)[0], bits_of(x, word, vocabulary)) for x in own] for own in images
    ]
    words = range(len(vocabulary.centroids))
    idf = [math.log(len(images) / max(1, sum(any(f == w for f, _ in own) for own in extracted))) for w in words]
    norms = [math.sqrt(sum((sum(f == w for f, _ in own) * idf[w]) ** 2 for w in words)) or 1.0 for own in extracted]

    def matches(features: list[list[tuple[int, list[int]]]], most: int) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """By descriptor of the query and image: the word and distance of each match."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for q, readings in enumerate(features):
            for word, bits in readings:
                for i, own in enumerate(extracted):
                    for other, others in own:
                        h = sum(a != b for a, b in zip(bits, others, strict=True))
                        if other == word and h <= most:
                            found.setdefault((q, i), []).append((word, h))
        return found

    def score(features: list[list[tuple[int, list[int]]]]) -> list[float]:
        scores = [0.0] * len(images)
        for (_, i), burst in matches(features, method.threshold).items():
            weights = [math.exp(-(h**2) / method.sigma**2) for _, h in burst]
            for (word, _), weight in zip(burst, weights, strict=True):
                scores[i] += weight * math.sqrt(weight / sum(weights)) * idf[word] ** 2 / norms[i]
        return scores

    asked = [[(w, bits_of(x, w, vocabulary)) for w in nearest_words(x, vocabulary, method.assignments)] for x in query]
    strictly = matches(asked, method.strict)
    reliable = [i for i in range(len(images)) if sum(at == i for _, at in strictly) >= method.reliable]
    if not reliable:
        return score(asked), False
    sources = [[readings[0] for readings in asked], *(extracted[i] for i in reliable)]
    shared = {w: sum(any(f == w for f, _ in own) for own in sources) for w in words}
    kept = round(method.growth * len({readings[0][0] for readings in asked}))
    chosen = [w for w in sorted(words, key=lambda w: -shared[w])[:kept] if shared[w]]
    expanded = []
    for w in chosen:
        pool = [bits for own in sources for f, bits in own if f == w]
        expanded.append([(w, [int(sum(bits[b] for bits in pool) * 2 >= len(pool)) for b in range(64)])])
    return score(expanded), True


@pytest.mark.parametrize("reliable", [2, 10**6])
def test_scores_equal_those_of_a_literal_version(
    rng: np.random.Generator, reliable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hamming, "MAX_PAIRS", 7)
    things = rng.random((40, 128)).astype(np.float32)
    images = []
    for i in range(12):
        shown = rng.choice(40, 4 + i, replace=True)
        images.append((things[shown] + 0.1 * rng.random((len(shown), 128))).astype(np.float32))
    images.append(np.empty((0, 128), np.float32))
    method = HammingQueryExpansion(words=6, threshold=30, strict=22, assignments=2, reliable=reliable, growth=0.7)
    method.fit_descriptors(images)
    for query in (images[3][:5], images[9], things[:6]):
        truth, expanded = literal_scores(images, query, method, method._embedding)
        assert expanded == (reliable == 2)
        assert max(truth) > 0
        ranking = method.search_descriptors(query)
        np.testing.assert_allclose(ranking.scores, np.array(truth)[ranking.images], rtol=1e-5)
        assert sorted(ranking.images) == list(range(len(images)))


def test_descriptors_of_no_image_are_refused() -> None:
    with raises("no-photos", InvalidInputError):
        HammingQueryExpansion().fit_descriptors([])


def test_a_vocabulary_is_that_of_the_nearest_centroids_and_its_bits_split_each_word_in_halves(
    rng: np.random.Generator,
) -> None:
    descriptors = rng.random((400, 128)).astype(np.float32)
    vocabulary = hamming.learn_embedding(descriptors, 1000)
    assert len(vocabulary.centroids) == 400 // hamming.POINTS_A_WORD
    words = vocabulary.words(descriptors, 3)
    assert words[:20].tolist() == [nearest_words(x, vocabulary, 3) for x in descriptors[:20]]
    bits = hamming.unpack_bits(vocabulary.signatures(descriptors, words[:, 0]))
    for word in range(len(vocabulary.centroids)):
        own = bits[words[:, 0] == word]
        assert (np.abs(own.sum(axis=0) - len(own) / 2) <= 0.5).all()


def test_distances_count_the_bits_that_differ(rng: np.random.Generator) -> None:
    one, other = rng.integers(0, 2, (2, 50, 64)).astype(np.bool_)
    truth = [sum(a != b for a, b in zip(x, y, strict=True)) for x, y in zip(one, other, strict=True)]
    assert hamming.hamming_distances(hamming.pack_bits(one), hamming.pack_bits(other)).tolist() == truth
    assert (hamming.unpack_bits(hamming.pack_bits(one)) == one).all()


# -- photos -----------------------------------------------------------------------------------------------------------


def texture(rng: np.random.Generator, size: int) -> Pixels:
    """Blobs of several sizes, on which SIFT finds a lot."""
    total = np.zeros((size, size, 3))
    for cell in (5, 9, 16):
        coarse = rng.integers(0, 256, (-(-size // cell) + 1, -(-size // cell) + 1, 3)).astype(np.uint8)
        total += np.asarray(Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC))
    return np.asarray(total / 3, np.uint8)


@pytest.fixture(scope="module")
def photos() -> list[Pixels]:
    """Sixteen photos; the first six show the same thing at other places, sizes and brightness."""
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    rng = np.random.default_rng(4)
    thing = texture(rng, 96)
    made = []
    for i in range(16):
        photo = texture(rng, 240)
        if i < 6:
            turned = Image.fromarray(thing).resize((80 + 12 * i,) * 2, Image.Resampling.BICUBIC)
            shown = np.asarray(turned, np.float64) * (0.75 + 0.05 * i)
            x, y = 10 * i, 60 - 8 * i
            photo[y : y + len(shown), x : x + len(shown)] = shown
        made.append(photo)
    return made


SMALL = {"words": 4096, "reliable": 5, "features": 400}


@pytest.fixture(scope="module")
def fitted(photos: list[Pixels]) -> HammingQueryExpansion:
    return HammingQueryExpansion(**SMALL).fit(photos)


def test_the_photos_that_show_the_thing_in_the_box_come_first(
    fitted: HammingQueryExpansion, photos: list[Pixels]
) -> None:
    box = (20.0, 44.0, 124.0, 148.0)  # of the third photo
    ranking = fitted.search(photos[2], box)
    assert sorted(ranking.images.tolist()) == list(range(16))
    assert set(ranking.images[:6].tolist()) == set(range(6))
    assert (np.diff(ranking.scores) <= 0).all()
    (again,) = fitted.search_many([(photos[2], box)], top=4)
    assert again.images.tolist() == ranking.images[:4].tolist()


def test_files_give_what_their_pixels_give(fitted: HammingQueryExpansion, photos: list[Pixels], tmp_path: Path) -> None:
    for i, pixels in enumerate(photos):
        Image.fromarray(pixels).save(tmp_path / f"{i:02}.png")
    done: list[tuple[int, int]] = []
    method = HammingQueryExpansion(**SMALL)
    method.fit([tmp_path / f"{i:02}.png" for i in range(16)], progress=lambda *at: done.append(at))
    assert done[-1][0] == done[-1][1]
    ranking, truth = method.search(tmp_path / "01.png"), fitted.search(photos[1])
    assert ranking.images.tolist() == truth.images.tolist()
    np.testing.assert_allclose(ranking.scores, truth.scores, rtol=1e-6)


def test_descriptors_of_a_box_are_those_of_the_photo_centred_in_it(photos: list[Pixels]) -> None:
    whole = {row.tobytes() for row in local_descriptors(photos[0], most=10**6)}
    left = {row.tobytes() for row in local_descriptors(photos[0], (0, 0, 120, 240), most=10**6)}
    right = {row.tobytes() for row in local_descriptors(photos[0], (120, 0, 240, 240), most=10**6)}
    assert left
    assert right
    assert left | right == whole
    np.testing.assert_allclose(np.linalg.norm(local_descriptors(photos[0], most=7), axis=1), np.ones(7), rtol=1e-5)


def test_a_photo_that_cannot_be_read_is_ranked_last_with_a_warning(photos: list[Pixels], tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    Image.fromarray(photos[0]).save(broken)
    broken.write_bytes(broken.read_bytes()[:2000])
    with pytest.warns(ManifindWarning, match=r"1 photos cannot be read, 0 first"):
        method = HammingQueryExpansion(**SMALL).fit([broken, *photos[1:]])
    assert method.search(photos[1]).scores[-1] == 0


def test_a_query_without_features_ranks_all_at_zero(fitted: HammingQueryExpansion) -> None:
    ranking = fitted.search(np.full((60, 60, 3), 128, np.uint8))
    assert ranking.images.tolist() == list(range(16))
    assert not ranking.scores.any()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((np.zeros((5, 5), np.uint8),), "photo-array"),
        ((np.zeros((50, 50, 3), np.uint8), (60, 0, 70, 10)), "box-outside"),
        ((np.zeros((50, 50, 3), np.uint8), (1, 2, 3)), "box-numbers"),
        ((np.zeros((50, 50, 3), np.uint8), None, 0), "invalid-input"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(
    fitted: HammingQueryExpansion, arguments: tuple[object, ...], code: str
) -> None:
    if len(arguments) > 1 and arguments[1] is not None:
        arguments = (texture(np.random.default_rng(0), 50), *arguments[1:])
    with raises(code, InvalidInputError):
        fitted.search(*arguments)  # type: ignore[arg-type]


def test_what_cannot_be_fitted_is_refused(photos: list[Pixels]) -> None:
    with raises("no-photos"):
        HammingQueryExpansion().fit([])
    with raises("no-local-features"):
        HammingQueryExpansion().fit([np.zeros((40, 40, 3), np.uint8)])
    with raises("invalid-input"):
        HammingQueryExpansion(words=0).fit(photos)
    with pytest.raises(NotFittedError):
        HammingQueryExpansion().search(photos[0])


def test_without_opencv_the_line_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'manifind\[sift\]'"):
        HammingQueryExpansion().fit([np.zeros((40, 40, 3), np.uint8)])
