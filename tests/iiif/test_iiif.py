"""Manifests of IIIF: mirrored politely, indexed, and results written as annotations on their canvases."""

import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from manifind.errors import DamagedError, InvalidInputError
from manifind.iiif import CANVASES, FetchConfig, MirrorConfig, MirrorReport, mirror, read_canvases
from manifind.iiif.fetch import Fetcher, FetchError
from manifind.iiif.mirror import image_address
from manifind.iiif.presentation import canvases_of, members_of
from manifind.index import Index
from manifind.reports.results import annotations_data
from tests.commands import refused, run
from tests.extraction_options import PLAINLY
from tests.iiif.museum import IMAGE_2, IMAGE_3, Museum, opened
from tests.index.conftest import scene

NAMES = [f"{kind}-{i}.png" for kind in ("first", "none") for i in range(3)]
QUICK = MirrorConfig(fetch=FetchConfig(first_wait=0.01))


@pytest.fixture(scope="module")
def prints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three photos with the thing, three without."""
    folder = tmp_path_factory.mktemp("prints")
    for i in range(3):
        Image.fromarray(scene(i, 1, (20 + 50 * i, 30 + 20 * i))).save(folder / f"first-{i}.png")
        Image.fromarray(scene(20 + i, None)).save(folder / f"none-{i}.png")
    return folder


@pytest.fixture
def museum(prints: Path) -> Iterator[Museum]:
    with opened(prints) as museum:
        museum.manifest_3("/new/manifest.json", NAMES[:4])
        museum.manifest_2("/old/manifest.json", NAMES[4:])
        museum.collection("/all.json", ["/new/manifest.json", "/old/manifest.json"])
        yield museum


def taken(museum: Museum, folder: Path, path: str = "/all.json", config: MirrorConfig = QUICK) -> MirrorReport:
    return mirror(f"{museum.address}{path}", folder, allow_private=True, config=config)


def test_a_collection_of_both_versions_is_mirrored(museum: Museum, tmp_path: Path) -> None:
    report = taken(museum, tmp_path / "all")
    assert (report.fetched, report.unchanged, report.skipped) == (6, 0, [])
    canvases = read_canvases(tmp_path / "all")
    assert {one.canvas for one in canvases.values()} == {museum.canvas(name) for name in NAMES}
    for key, one in canvases.items():
        width, height = museum.size(one.label)
        with Image.open(tmp_path / "all" / key) as photo:
            assert photo.size == (width, height)
        scale = 2 if one.label in NAMES[:4] else 1
        assert one.place == (0, 0, scale * width, scale * height)


def test_a_second_run_asks_for_no_image_and_follows_what_is_published(museum: Museum, tmp_path: Path) -> None:
    taken(museum, tmp_path / "all")
    before = {path: count for path, count in museum.asked.items() if path.startswith("/image")}
    museum.manifest_3("/new/manifest.json", NAMES[1:4])
    report = taken(museum, tmp_path / "all")
    assert (report.fetched, report.unchanged, report.removed) == (0, 5, 1)
    assert {path: count for path, count in museum.asked.items() if path.startswith("/image")} == before
    assert len(list((tmp_path / "all").rglob("*.jpg"))) == 5


def test_a_busy_server_is_asked_again_and_a_failing_one_keeps_what_was_there(museum: Museum, tmp_path: Path) -> None:
    image = "/image/first-0.png/full/max/0/default.jpg"
    museum.busy["/image/first-0.png/info.json"] = museum.busy["/all.json"] = 2
    assert taken(museum, tmp_path / "all").fetched == 6
    assert museum.asked["/image/first-0.png/info.json"] == 3
    (file,) = [key for key, one in read_canvases(tmp_path / "all").items() if one.label == "first-0.png"]
    (tmp_path / "all" / file).write_bytes(b"cut")
    museum.busy[image] = 100
    report = taken(museum, tmp_path / "all")
    assert (report.unchanged, len(report.skipped)) == (5, 1)
    museum.busy[image] = 0
    assert taken(museum, tmp_path / "all").fetched == 1
    museum.busy["/old/manifest.json"] = 100
    assert taken(museum, tmp_path / "all").removed == 0


def test_only_named_hosts_are_asked(museum: Museum, prints: Path, tmp_path: Path) -> None:
    with opened(prints) as other:
        elsewhere = other.address.replace("127.0.0.1", "localhost")
        museum.manifest_2("/mixed.json", NAMES[:2], elsewhere)
        museum.documents["/moved.json"] = f"{elsewhere}/stolen.json"
        with pytest.raises(InvalidInputError, match="--host localhost"):
            taken(museum, tmp_path / "mixed", "/mixed.json")
        with pytest.raises(InvalidInputError, match="--host localhost"):
            taken(museum, tmp_path / "moved", "/moved.json")
        assert not other.asked
        report = mirror(
            f"{museum.address}/mixed.json", tmp_path / "both", hosts=["localhost"], allow_private=True, config=QUICK
        )
        assert report.fetched == 2


def test_a_private_network_is_asked_only_where_that_is_allowed(museum: Museum, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="--allow-private"):
        mirror(f"{museum.address}/all.json", tmp_path / "all", config=QUICK)
    assert not museum.asked
    fetcher = Fetcher(frozenset({"127.0.0.1", "example.org"}), allow_private=False, max_bytes=1, config=QUICK.fetch)
    for address in ("file:///etc/passwd", "ftp://example.org/", "http://me@example.org/", "http://[", "http://other/"):
        with pytest.raises(FetchError):
            fetcher.document(address)


def test_bodies_are_bounded(museum: Museum, tmp_path: Path) -> None:
    small = MirrorConfig(fetch=FetchConfig(max_document_bytes=200))
    with pytest.raises(InvalidInputError, match="longer than"):
        taken(museum, tmp_path / "documents", config=small)
    few = MirrorConfig(max_bytes=30_000, fetch=FetchConfig(at_once=1))
    report = taken(museum, tmp_path / "images", config=MirrorConfig(fetch=FetchConfig(max_image_bytes=10**6)))
    assert report.fetched == 6
    with pytest.raises(InvalidInputError, match="--max-bytes"):
        taken(museum, tmp_path / "few", config=few)
    fetched = list((tmp_path / "few").rglob("*.jpg"))
    assert 0 < sum(file.stat().st_size for file in fetched) <= few.max_bytes
    assert taken(museum, tmp_path / "few").unchanged == len(fetched)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({**IMAGE_3, "width": 4000, "height": 3000}, "full/1600,/"),
        ({**IMAGE_2, "width": 3000, "height": 4000}, "full/1200,/"),
        ({**IMAGE_3, "width": 800, "height": 600}, "full/max/"),
        ({**IMAGE_2, "width": 800, "height": 600}, "full/full/"),
        ({**IMAGE_3, "width": 4000, "height": 3000, "maxWidth": 1000}, "full/1000,/"),
        (
            {
                **IMAGE_3,
                "profile": "level0",
                "width": 4000,
                "height": 3000,
                "sizes": [{"width": 1000, "height": 750}, {"width": 2000, "height": 1500}],
            },
            "full/2000,1500/",
        ),
        ({**IMAGE_3, "profile": "level0", "width": 4000, "height": 3000}, "full/max/"),
    ],
)
def test_an_image_is_asked_for_at_the_size_that_is_needed(info: dict[str, object], words: str) -> None:
    assert image_address(info, "https://example.org/a", 1600) == f"https://example.org/a/{words}0/default.jpg"


def places_in(document: Any) -> list[tuple[Any, Any]]:
    """Every value in a document, as what holds it and its name there."""
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [place for name, value in inside for place in ((document, name), *places_in(value))]


JUNK: st.SearchStrategy[Any] = (
    st.none() | st.floats() | st.text(max_size=3) | st.just([]) | st.just({}) | st.just(["x"]) | st.just({"en": 1})
)


@given(st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_document_of_anybody_is_read_without_a_crash(museum: Museum, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(museum.documents)))
    document = json.loads(json.dumps(museum.documents[path]))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, name = data.draw(st.sampled_from(places_in(document)))
        holder[name] = deepcopy(data.draw(JUNK))
    for one in canvases_of(document):
        assert one.canvas
        assert one.image
        assert len(one.place) == 4
    assert all(members_of(document))


def test_a_folder_of_something_else_is_left_alone(museum: Museum, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.jpg").write_bytes(b"mine")
    with pytest.raises(InvalidInputError, match="files of its own"):
        taken(museum, own)
    taken(museum, tmp_path / "all")
    with pytest.raises(InvalidInputError, match="mirrors"):
        taken(museum, tmp_path / "all", "/new/manifest.json")
    file = tmp_path / "all" / CANVASES
    data = json.loads(file.read_text())
    data["photos"]["../mine.jpg"] = next(iter(data["photos"].values()))
    file.write_text(json.dumps(data))
    with pytest.raises(DamagedError):
        taken(museum, tmp_path / "all")


def test_matches_are_annotated_where_they_are_on_their_canvases(museum: Museum, tmp_path: Path) -> None:
    folder, target = tmp_path / "museum", tmp_path / "museum.manifind"
    taken(museum, folder)
    index = Index.create(target, folder, **PLAINLY, k=20, query_k=20, alpha=0.99)
    result = index.search(scene(99, 1), (40, 60, 168, 188))
    found = result[: result.n_matches]
    assert {read_canvases(folder)[hit.key].label for hit in found} == set(NAMES[:3])
    page = annotations_data(index, found)
    assert (page["@context"], page["type"]) == ("http://www.w3.org/ns/anno.jsonld", "AnnotationPage")
    for one in page["items"]:
        source, (fragment, svg) = one["target"]["source"], one["target"]["selector"]
        number = int(source["id"].rpartition("first-")[2][0])
        # Canvases are twice as large as their photos.
        true = np.array([20 + 50 * number, 30 + 20 * number, 128, 128]) * 2
        numbers = [float(value) for value in re.findall(r"\d+", fragment["value"])]
        np.testing.assert_allclose(numbers, true, atol=10)
        (path,) = ET.parse(io.StringIO(svg["value"])).getroot()  # noqa: S314 (our own)
        corners = np.array([float(value) for value in re.findall(r"[\d.]+", path.attrib["d"])]).reshape(-1, 2)
        expected = true[:2] + np.array([[0, 0], [256, 0], [256, 256], [0, 256]])
        np.testing.assert_allclose(np.sort(corners, axis=0), np.sort(expected, axis=0), atol=10)
        assert source["partOf"][0]["id"] == f"{museum.address}/new/manifest.json"


def test_the_commands_do_it_by_the_address_alone(museum: Museum, prints: Path, tmp_path: Path) -> None:
    target, file = tmp_path / "museum.manifind", tmp_path / "found.json"
    address = f"{museum.address}/all.json"
    assert "--allow-private" in refused("index", address, "-o", target)
    words = ("index", address, "-o", target, "--allow-private", "--whiten", "none")
    assert run(*words).exit_code == 0
    assert "6 unchanged" in run(*words).stderr
    query = (prints / "first-0.png", "--box", "20,30,148,158")
    assert run("search", target, *query, "--annotations", file).exit_code == 0
    assert {one["target"]["source"]["id"] for one in json.loads(file.read_text())["items"]} >= {
        museum.canvas(name) for name in NAMES[:3]
    }
    assert "--host" in refused("index", prints, "--host", "example.org")
