"""Searching for mirrored objects too: a collection with mirrored copies, each known to be one."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manifind.errors import InvalidInputError
from manifind.index import BatchQuery, Index, extract_query_view
from manifind.reports.search_report import verify_report
from tests.commands import refused, run
from tests.extraction_options import PLAINLY
from tests.geometry.photographs import photograph
from tests.index.conftest import BOX, Pixels, where
from tests.index.conftest import scene as plain_scene

WIDTH = 320
TRUTH = {f"upright-{i}.png": False for i in range(3)} | {f"mirrored-{i}.png": True for i in range(3)}
"""The photos that show the first thing, and whether they show it mirrored."""


def scene(background: int, number: int | None, at: tuple[int, int] = (40, 60)) -> Pixels:
    """A photo with a thing in it whose halves differ: the things of other tests are near their own mirror images."""
    photo = plain_scene(background, None)
    if number is not None:
        name, (x, y) = {1: ("astronaut.png", (100, 10)), 2: ("coffee.png", (180, 60))}[number]
        thing = Image.fromarray(photograph(name)).crop((x, y, x + 256, y + 256)).resize((128, 128))
        photo[at[1] : at[1] + 128, at[0] : at[0] + 128] = np.asarray(thing)
    return photo


@pytest.fixture(scope="module")
def query() -> Pixels:
    """The first thing before what no photo of the collection shows."""
    return scene(99, 1)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The first thing upright and mirrored, the second thing, and photos without any."""
    base = tmp_path_factory.mktemp("mirrored")
    (base / "photos").mkdir()
    for i in range(3):
        upright, reversed_slide = scene(i, 1, (20 + 50 * i, 30 + 20 * i)), scene(30 + i, 1, (20 + 50 * i, 30 + 20 * i))
        Image.fromarray(upright).save(base / "photos" / f"upright-{i}.png")
        Image.fromarray(reversed_slide[:, ::-1]).save(base / "photos" / f"mirrored-{i}.png")
        Image.fromarray(scene(10 + i, 2, (180 - 50 * i, 20 + 25 * i))).save(base / "photos" / f"second-{i}.png")
        Image.fromarray(scene(20 + i, None)).save(base / "photos" / f"none-{i}.png")
    return Index.create(base / "photos.manifind", base / "photos", **PLAINLY, k=20, query_k=20, alpha=0.99)


def outline_of(key: str) -> list[tuple[float, float]]:
    """Where the corners of the thing are, in the order of those of the query's box."""
    x0, y0, x1, y1 = where(int(key[-5]))
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    return [(WIDTH - x, y) for x, y in corners] if TRUTH[key] else corners


def test_mirrored_photos_are_found_verified_and_told(collection: Index, query: Pixels) -> None:
    result = collection.search(query, BOX, top=None, mirrored=True)
    verified = {hit.key: hit for hit in result if hit.verified}
    assert {key: hit.mirrored for key, hit in verified.items()} == TRUTH
    for key, hit in verified.items():
        np.testing.assert_allclose(np.array(hit.outline), np.array(outline_of(key)), atol=4)
        x, y = np.array(outline_of(key)).T
        np.testing.assert_allclose(np.array(hit.box), (x.min(), y.min(), x.max(), y.max()), atol=12)
    assert result.n_matches == 6
    assert "mirrored" in result._repr_html_()


def test_without_the_option_mirrored_photos_are_not_verified(collection: Index, query: Pixels) -> None:
    result = collection.search(query, BOX, top=None)
    assert {hit.key for hit in result if hit.verified} == {key for key, mirrored in TRUTH.items() if not mirrored}
    assert {hit.mirrored for hit in result} == {None}


def test_without_the_option_scores_are_those_of_the_regions_alone(collection: Index, query: Pixels) -> None:
    view = extract_query_view(collection.extractor, query, BOX)
    images, scores = collection.manifold.search(view.vectors, top=None)
    result = collection.search(query, BOX, top=None, verify=0)
    np.testing.assert_array_equal(result.images, images)
    np.testing.assert_array_equal(result.scores, scores)


def test_no_score_falls_where_mirrored_objects_are_searched_for(collection: Index, query: Pixels) -> None:
    without, both = (collection.search(query, BOX, top=None, verify=0, mirrored=on) for on in (False, True))
    before, after = ({hit.key: hit.score for hit in one} for one in (without, both))
    assert all(after[key] >= 0.99 * score for key, score in before.items())  # conjugate gradient ends early
    assert max(after.values()) < 2 * max(before.values())


def test_a_query_and_the_mirrored_query_find_the_same(collection: Index, query: Pixels) -> None:
    x0, y0, x1, y1 = BOX
    as_given = collection.search(query, BOX, top=None, mirrored=True)
    turned = collection.search(query[:, ::-1].copy(), (WIDTH - x1, y0, WIDTH - x0, y1), top=None, mirrored=True)
    assert {hit.key: hit.mirrored for hit in turned if hit.verified} == {key: not one for key, one in TRUTH.items()}
    scores = [{hit.key: hit.score for hit in one} for one in (as_given, turned)]
    assert scores[0] == pytest.approx(scores[1], rel=0.02, abs=1e-4)


@pytest.mark.parametrize("key", TRUTH)
def test_matching_points_are_those_of_the_photo_as_given(collection: Index, query: Pixels, key: str) -> None:
    points = collection.matching_points(query, key, BOX, mirrored=True)
    assert (points.verified, points.mirrored) == (True, TRUTH[key])
    x0, y0, x1, y1 = BOX
    assert ((points.query >= (x0 - 1, y0 - 1)) & (points.query <= (x1 + 1, y1 + 1))).all()
    offset = points.query - (x0, y0)
    (ax, ay), (bx, _), _, (_, dy) = outline_of(key)
    there = (ax, ay) + offset * ((bx - ax) / (x1 - x0), (dy - ay) / (y1 - y0))
    assert np.median(np.linalg.norm(points.photo - there, axis=1)) < 2
    assert points.transform is not None
    assert (np.linalg.det(points.transform) < 0) == TRUTH[key]


def test_a_view_among_several_says_which_photo_it_is(collection: Index, query: Pixels) -> None:
    result = collection.search(scene(98, None), BOX, positives=[(query, BOX)], top=None, mirrored=True)
    found = {collection.catalogue[image].key: one for image, one in result.verifications.items() if one.verified}
    assert {key: one.mirrored for key, one in found.items()} == TRUTH
    assert {one.geometry.view for one in found.values() if one.geometry is not None} == {1}


def test_an_explanation_begins_in_the_photo_as_given(collection: Index, query: Pixels) -> None:
    result = collection.search(query, BOX, top=None, mirrored=True)
    hit = next(hit for hit in result if hit.key == "mirrored-0.png")
    chain = collection.explain(hit)
    (x0, y0, x1, y1), (a, b, c, d) = chain.links[0].source.box, BOX
    assert chain.links[0].source.key is None
    assert a <= x0 < x1 <= c
    assert b <= y0 < y1 <= d
    told = collection.confirm(chain, query, BOX, mirrored=True)
    assert all(link.within or link.verified for link in told.links)


def test_many_queries_are_mirrored_too(collection: Index, query: Pixels) -> None:
    (answer,) = collection.search_many([BatchQuery("one", [(query, BOX)])], mirrored=True)
    assert answer.result is not None
    assert {hit.key: hit.mirrored for hit in answer.result if hit.verified} == TRUTH


def test_what_is_neither_true_nor_false_is_refused(collection: Index, query: Pixels) -> None:
    with pytest.raises(InvalidInputError, match="mirrored is 'yes'; give True or False"):
        collection.search(query, BOX, mirrored="yes")  # type: ignore[arg-type]


def test_commands_tell_what_is_mirrored_only_where_asked(collection: Index, query: Pixels, tmp_path: Path) -> None:
    Image.fromarray(query).save(tmp_path / "query.png")
    words = ["search", collection.path, tmp_path / "query.png", "--box", ",".join(map(str, BOX)), "--top", 8]
    printed = json.loads(run(*words, "--json", "--mirrored", "--report", tmp_path / "report").stdout)
    assert {one["key"]: one["mirrored"] for one in printed["results"] if one["verified"]} == TRUTH
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv", "--mirrored").stdout)))
    assert {row["key"]: row["mirrored"] == "yes" for row in rows if row["verified"] == "yes"} == TRUTH
    lines = [line for line in run(*words, "--mirrored").stdout.splitlines() if ", mirrored" in line]
    assert {line.split()[2] for line in lines} == {key for key, mirrored in TRUTH.items() if mirrored}
    assert all("mirrored" not in one for one in json.loads(run(*words, "--json").stdout)["results"])
    assert "mirrored" not in run(*words, "--csv").stdout.splitlines()[0]
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["options"]["mirrored"] is True
    assert verify_report(tmp_path / "report", collection).differences == []
    assert "leave --keep or --mirrored out" in refused(*words, "--mirrored", "--keep", "both")


def test_explain_says_what_is_mirrored(collection: Index, query: Pixels, tmp_path: Path) -> None:
    Image.fromarray(query).save(tmp_path / "query.png")
    words = ["explain", collection.path, tmp_path / "query.png", "mirrored-1.png", "--box", ",".join(map(str, BOX))]
    assert json.loads(run(*words, "--mirrored", "--json").stdout)["geometry"]["mirrored"] is True
    assert "in the same arrangement, mirrored" in run(*words, "--mirrored").stdout
    assert "mirrored" not in json.loads(run(*words, "--json").stdout)["geometry"]
